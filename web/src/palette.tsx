// Every place and page by typing a part of its name: Ctrl+K, or "/" outside of a field.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { useDialog } from "./dialog.ts";
import { type Named, fitting } from "./fit.ts";
import { isTyped, openKeys } from "./keys.tsx";
import { pages } from "./pages.ts";
import { plain } from "./plain.ts";
import { places } from "./places.tsx";
import { go } from "./route.ts";
import { attempt, leave, members, objectives } from "./state.ts";
import { nameOf } from "./talk.ts";
import { THEMES, choose as chooseTheme } from "./theme.ts";

const CHOICES_MAX = 12;

const open = signal(false);
export const openPalette = () => {
  open.value = true;
};

addEventListener("keydown", (event) => {
  if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyped(event))) {
    event.preventDefault();
    open.value = true;
  }
});

// Close the dialog if the person goes to another page in another way.
addEventListener("hashchange", () => {
  open.value = false;
});

interface Choice extends Named {
  act(): void;
}

function choices(): Choice[] {
  return [
    ...pages.value.map(({ name, title }) => ({ text: title, hint: "page", act: () => go(name) })),
    ...places.value.map((place) => ({ text: nameOf(place), hint: "conversation", act: () => go("talk", place) })),
    ...members.value.map((member) => ({ text: member.name, hint: "member", act: () => go("members", member.name) })),
    ...objectives.value.map((one) => ({ text: one.title, hint: "objective", act: () => go("objectives", one.id) })),
    { text: "Keys", hint: "action", act: openKeys },
    ...THEMES.map((one) => ({ text: `Theme: ${one}`, hint: "action", act: () => chooseTheme(one) })),
    { text: "Sign out", hint: "action", act: () => void attempt(leave) },
  ];
}

export function Palette() {
  const dialog = useDialog(open);
  return (
    <dialog {...dialog} aria-label="Go to">
      {open.value && <Asked />}
    </dialog>
  );
}

/** The field to type in, and what it finds. It is made anew each time the dialog opens. */
function Asked() {
  const [asked, setAsked] = useState("");
  const [pick, setPick] = useState(0);
  const search = { text: `Search for “${asked}”`, hint: "search", act: () => go("search", asked) };
  const found = [...fitting(choices(), asked).slice(0, CHOICES_MAX - 1), ...(asked.trim() ? [search] : [])];
  const choose = (choice: Choice | undefined) => {
    open.value = false;
    choice?.act();
  };
  return (
    <>
      <input
        autofocus
        value={asked}
        placeholder="Go to a page, conversation, member or objective"
        aria-label="Go to"
        role="combobox"
        aria-expanded="true"
        aria-controls="choices"
        aria-activedescendant={`choice-${pick}`}
        onInput={(event) => {
          setAsked(event.currentTarget.value);
          setPick(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") choose(found[pick]);
          else if (event.key === "ArrowDown") setPick(Math.min(pick + 1, found.length - 1));
          else if (event.key === "ArrowUp") setPick(Math.max(pick - 1, 0));
          else return;
          event.preventDefault();
        }}
      />
      <ul id="choices" role="listbox" aria-label="Found">
        {found.map((choice, index) => (
          <li
            key={index}
            id={`choice-${index}`}
            role="option"
            aria-selected={index === pick}
            onMouseDown={() => choose(choice)}
          >
            {plain(choice.text)} <small>{choice.hint}</small>
          </li>
        ))}
      </ul>
    </>
  );
}
