// Requests of the console beside the hub's own protocol: files, messages with files, and devices that wait for a token.
import type { components, paths } from "./routes.d.ts";
import type { Attachment } from "./hub.ts";

type Method = "get" | "post" | "delete";
type Json<Content> = Content extends { content: { "application/json": infer Value } } ? Value : never;
type Body<Route> = Route extends { requestBody?: infer Found } ? Json<NonNullable<Found>> : never;
type Query<Route> = Route extends { parameters: { query: infer Found } } ? Found : never;
type Params<Route> = Route extends { parameters: { path: infer Found } } ? Found : never;
type Reply<Route> = Route extends { responses: { 200: infer Found } } ? Json<Found> : undefined;

interface Given<Route> {
  body?: Body<Route> | Blob;
  query?: Query<Route>;
  /** Values of the parameters of the path, which are in braces. */
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
  const found = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent((params as Record<string, string>)[name] ?? ""),
  );
  const answer = await fetch(`${found}${asked}`, init);
  if (answer.status === 204) return undefined as Reply<paths[Path][By]>;
  const said: unknown = await answer.json().catch(() => ({}));
  if (!answer.ok)
    throw new Error((said as { error?: string }).error ?? `The hub answered ${answer.status}.`, { cause: said });
  return said as Reply<paths[Path][By]>;
}

/** Keep a file in a member's own folder. */
export async function upload(file: File, owner: string): Promise<Attachment> {
  const name = file.name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(-120) || "file";
  const query = {
    path: `/${owner}/console/${name}`,
    collide: "suffix" as const,
    ...(file.type ? { mime: file.type } : {}),
  };
  return await call("post", "/api/files", { query, body: file });
}

type Form<Name extends "SendForm" | "WorkForm"> = Omit<components["schemas"][Name], "files">;

const pathsOf = (files: readonly Attachment[]): string[] => files.map((file) => file.path);

/** Say something with files, which are shown to whoever receives it; to how many it goes. */
export async function sendFiles(said: Form<"SendForm">, files: readonly Attachment[]): Promise<number> {
  return (await call("post", "/api/messages", { body: { ...said, files: pathsOf(files) } })).recipients;
}

/** Give somebody work with files, which are copied for it and shown to those who have a part in it; its id. */
export async function giveWork(work: Form<"WorkForm">, files: readonly Attachment[]): Promise<string> {
  return (await call("post", "/api/objectives", { body: { ...work, files: pathsOf(files) } })).id;
}

const READ = "/api/files/{path}" satisfies keyof paths;

// The sender chooses the path. Dots in it would lead to another address of the hub.
const steps = (path: string): string[] => path.split("/").filter((step) => step && step !== "." && step !== "..");

export const fileAddress = (path: string): string =>
  READ.replace("{path}", () => steps(path).map(encodeURIComponent).join("/"));

/** A request of this browser for a token. */
export type Request = components["schemas"]["DeviceStarted"];

export const askForToken = (label: string): Promise<Request> => call("post", "/api/devices", { body: { label } });

/** Outcome of such a request: a token, or the answer if waiting makes sense. */
type Outcome = { token: string; tokenId: string } | { wait: "yes" | "slower" } | { wait: "no"; why: string };

export const EXPIRED = "Nobody let you in before the code expired.";

export async function fetchToken(deviceCode: string): Promise<Outcome> {
  try {
    const { token, token_id } = await call("post", "/api/devices/poll", { body: { device_code: deviceCode } });
    return { token, tokenId: token_id };
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
        const reason = (error.cause as { error_description?: string }).error_description;
        return { wait: "no", why: reason ? `You were refused: ${reason}` : "You were refused." };
      }
      default:
        // The hub is not reachable for a while, or is overloaded.
        return { wait: "slower" };
    }
  }
}

/** Void a token of the member that is in. */
export const dropToken = (id: string): Promise<unknown> => call("delete", "/api/tokens/{id}", { params: { id } });

/** Model calls of one member with one model, their tokens and their cost. */
export type Spent = components["schemas"]["SpendRow"];

export const spentSince = async (ms: number): Promise<readonly Spent[]> =>
  (await call("get", "/api/spend", { query: { from_ms: ms } })).spend;

/** A device that waits for a token. */
export type Device = components["schemas"]["DeviceView"];

export const pending = async (): Promise<readonly Device[]> => (await call("get", "/api/devices")).devices;
export const approve = (userCode: string, member: string): Promise<unknown> =>
  call("post", "/api/devices/approve", { body: { user_code: userCode, member } });
export const reject = (userCode: string): Promise<unknown> =>
  call("post", "/api/devices/reject", { body: { user_code: userCode } });
