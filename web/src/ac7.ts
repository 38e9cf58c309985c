// What the console asks of the hub's ac7 routes: files, devices that wait for a token, and logins with a code.
import type { components, paths } from "./routes.d.ts";
import type { Attachment } from "./hub.ts";

type Method = "get" | "post" | "delete";
type Json<Content> = Content extends { content: { "application/json": infer Value } } ? Value : never;
type Body<Route> = Route extends { requestBody?: infer Given } ? Json<NonNullable<Given>> : never;
type Query<Route> = Route extends { parameters: { query: infer Given } } ? Given : never;
type Params<Route> = Route extends { parameters: { path: infer Given } } ? Given : never;
type Reply<Route> = Route extends { responses: { 200: infer Given } } ? Json<Given> : undefined;

interface Given<Route> {
  body?: Body<Route> | Blob;
  query?: Query<Route>;
  /** What stands in braces in the path. */
  params?: Params<Route>;
}

/** Ask a route. Its path, its query, what it is given and what it answers are held to the hub's own document. */
async function call<Path extends keyof paths, By extends Method>(
  method: By,
  path: Path,
  { body, query, params }: Given<paths[Path][By]> = {},
): Promise<Reply<paths[Path][By]>> {
  const init: RequestInit = { method: method.toUpperCase(), credentials: "same-origin" };
  if (body instanceof Blob) {
    init.body = body;
    init.headers = { "content-type": "application/octet-stream" };
  } else if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  const asked = query ? `?${new URLSearchParams(query as Record<string, string>)}` : "";
  const found = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent((params as Record<string, string>)[name] ?? ""));
  const answer = await fetch(`${found}${asked}`, init);
  if (answer.status === 204) return undefined as Reply<paths[Path][By]>;
  const said: unknown = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error((said as { error?: string }).error ?? `The hub answered ${answer.status}.`, { cause: said });
  return said as Reply<paths[Path][By]>;
}

/** Log in with a code of an authenticator app; the answer sets a cookie. */
export const logIn = (code: string, member: string): Promise<unknown> => call("post", "/session/totp", { body: member ? { code, member } : { code } });

/** End that login. */
export const logOut = (): Promise<unknown> => call("post", "/session/logout");

/** Keep a file in a member's own folder. */
export async function upload(file: File, owner: string): Promise<Attachment> {
  const name = file.name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(-120) || "file";
  const query = { path: `/${owner}/console/${name}`, collide: "suffix" as const, ...(file.type ? { mime: file.type } : {}) };
  const { entry } = await call("post", "/fs/write", { query, body: file });
  return { path: entry.path, name: entry.name, size: entry.size ?? 0, media_type: entry.mimeType ?? "" };
}

const attached = ({ path, name = "", size = 0, media_type = "" }: Attachment) => ({ path, name, size, mimeType: media_type });

/** What is said with files, and to whom: a member, or a thread (`chan:<id>`, `obj:<id>`); to everybody without either. */
export interface Parcel {
  to?: string;
  thread?: string;
  body: string;
  files: readonly Attachment[];
  urgent: boolean;
  reply_to?: string | null | undefined;
  /** The thread that a reply belongs to. */
  conversation?: string | null | undefined;
}

/** Say something with files, which are shown to whoever receives it. What ac7 has no key for stands in `data`. */
export async function push({ to, thread, body, files, urgent, reply_to, conversation }: Parcel): Promise<void> {
  const attachments = files.map(attached);
  const labels = { thread, reply_to, conversation, priority: urgent ? "urgent" : undefined };
  const data = Object.fromEntries(Object.entries(labels).filter(([, value]) => value));
  await call("post", "/push", { body: { body, attachments, data, ...(to ? { to } : {}) } });
}

/** Give somebody work with files, which are copied for it and shown to those who have a part in it; its id. */
export async function giveWork(work: Omit<components["schemas"]["CreateObjective"], "attachments">, files: readonly Attachment[]): Promise<string> {
  return (await call("post", "/objectives", { body: { ...work, attachments: files.map(attached) } })).id;
}

const READ = "/fs/read/{path}" satisfies keyof paths;

// A path is what a sender says it is: dots would lead out of the files, to any other address of the hub.
const steps = (path: string): string[] => path.split("/").filter((step) => step && step !== "." && step !== "..");

export const fileAddress = (path: string): string => READ.replace("{path}", () => steps(path).map(encodeURIComponent).join("/"));

/** A request of this browser for a token. */
export type Request = components["schemas"]["Started"];

export const askForToken = (labelHint: string): Promise<Request> => call("post", "/enroll", { body: { labelHint } });

/** What became of such a request: a token, or whether there is something to wait for. */
type Outcome = { token: string; tokenId: string; member: string } | { wait: "yes" | "slower" } | { wait: "no"; why: string };

export const EXPIRED = "Nobody let you in before the code expired.";

export async function fetchToken(deviceCode: string): Promise<Outcome> {
  try {
    const { token, tokenId, member } = await call("post", "/enroll/poll", { body: { deviceCode } });
    return { token, tokenId, member: member.name };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    switch (error.message) {
      case "authorization_pending":
        return { wait: "yes" };
      case "slow_down":
        return { wait: "slower" };
      case "expired_token":
        return { wait: "no", why: EXPIRED };
      case "access_denied": {
        const reason = (error.cause as { errorDescription?: string }).errorDescription;
        return { wait: "no", why: reason ? `You were refused: ${reason}` : "You were refused." };
      }
      default:
        // The hub is gone for a while, or has too much to do.
        return { wait: "slower" };
    }
  }
}

export const dropToken = (name: string, id: string): Promise<unknown> =>
  call("delete", "/members/{name}/tokens/{id}", { params: { name, id } });

/** A device that waits for a token. */
export type Device = components["schemas"]["PendingList"]["enrollments"][number];

export const pending = async (): Promise<readonly Device[]> => (await call("get", "/enroll/pending")).enrollments;
export const approve = (userCode: string, memberName: string): Promise<unknown> =>
  call("post", "/enroll/approve", { body: { mode: "bind", userCode, memberName } });
export const reject = (userCode: string): Promise<unknown> => call("post", "/enroll/reject", { body: { userCode } });
