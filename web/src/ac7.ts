// What the console asks of the hub's ac7 routes: files, devices that wait for a token, and logins with a code.
import type { Attachment } from "./hub.ts";
import type { Place } from "./talk.ts";
import { GENERAL } from "./talk.ts";
import { channels, visitor } from "./state.ts";

async function call<T>(path: string, method = "GET", body?: BodyInit | object): Promise<T> {
  const init: RequestInit = { method, credentials: "same-origin" };
  if (body instanceof Blob) {
    init.body = body;
    init.headers = { "content-type": "application/octet-stream" };
  } else if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  const answer = await fetch(path, init);
  if (answer.status === 204) return undefined as T;
  const said = (await answer.json().catch(() => ({}))) as T & { error?: string };
  if (!answer.ok) throw new Error(said.error ?? `The hub answered ${answer.status}.`);
  return said;
}

/** Log in with a code of an authenticator app; the answer sets a cookie. */
export const logIn = (code: string, member: string): Promise<unknown> =>
  call("/session/totp", "POST", member ? { code, member } : { code });


/** Keep a file in the member's own folder. */
export async function upload(file: File): Promise<Attachment> {
  const name = file.name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(-120) || "file";
  const query = new URLSearchParams({ path: `/${visitor.value?.member}/console/${name}`, collide: "suffix" });
  if (file.type) query.set("mime", file.type);
  const { entry } = await call<{ entry: { path: string; name: string; size: number; mimeType: string } }>(
    `/fs/write?${query}`,
    "POST",
    file,
  );
  return { path: entry.path, name: entry.name, size: entry.size, media_type: entry.mimeType };
}

/** Say something with files, which are shown to whoever receives it. */
export async function push(place: Place, body: string, files: readonly Attachment[]): Promise<void> {
  const attachments = files.map(({ path, name, size, media_type }) => ({ path, name, size, mimeType: media_type }));
  if (place.startsWith("obj:")) {
    await call(`/objectives/${place.slice(4)}/discuss`, "POST", { body, attachments });
    return;
  }
  const channel = channels.value.find((one) => `#${one.name}` === place);
  const to = place.startsWith("@") ? { to: place.slice(1) } : {};
  const thread = channel && place !== GENERAL ? { data: { thread: `chan:${channel.id}` } } : {};
  await call("/push", "POST", { body, attachments, ...to, ...thread });
}

export const fileAddress = (path: string): string => `/fs/read${path.split("/").map(encodeURIComponent).join("/")}`;

/** A device that waits for a token. */
export interface Device {
  userCode: string;
  labelHint: string;
  sourceIp: string | null;
  expiresAt: number;
}

export const pending = async (): Promise<readonly Device[]> =>
  (await call<{ enrollments: readonly Device[] }>("/enroll/pending")).enrollments;
export const approve = (userCode: string, memberName: string): Promise<unknown> =>
  call("/enroll/approve", "POST", { mode: "bind", userCode, memberName });
export const reject = (userCode: string): Promise<unknown> => call("/enroll/reject", "POST", { userCode });
