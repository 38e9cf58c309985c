// Signs of the pages, beside their names.

const PATHS: Readonly<Record<string, string>> = {
  home: "M3 11 12 4l9 7M6 9v10h12V9",
  live: "M3 12h4l3-7 4 14 3-7h4",
  talk: "M4 5h16v11H10l-5 4v-4H4z",
  members:
    "M8.5 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2 20c0-4 3-6 6.5-6s6.5 2 6.5 6M16 4.5a3.5 3.5 0 0 1 0 6M18 14.5c2.5.8 4 2.7 4 5.5",
  objectives: "M4 6l2 2 3-4M4 13l2 2 3-4M4 20l2 2 3-4M13 6h8M13 13h8M13 20h8",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  insights: "M4 20V10M10 20V4M16 20v-7M22 20H2",
  more: "M4 6h16M4 12h16M4 18h16",
};

export const Icon = ({ of }: { of: string }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={PATHS[of]} />
  </svg>
);
