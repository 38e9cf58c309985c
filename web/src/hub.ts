// The hub's own protocol in a browser: one WebSocket, requests that are answered in order, and the hub's own notices.
import { signal } from "@preact/signals";
import type { components } from "./frames.d.ts";

type Schemas = components["schemas"];
type ClientFrame = Schemas["ClientFrame"];
type HubFrame = Schemas["HubFrame"];

export type Message = Schemas["Message"];
export type Member = Schemas["MemberView"];
export type Channel = Schemas["ChannelView"];
export type Objective = Schemas["ObjectiveView"];
export type Receipt = Schemas["ReceiptView"];
export type Token = Schemas["TokenView"];
export type Activity = Schemas["ActivityView"];
export type Pause = Schemas["PauseView"];
export type Attachment = Schemas["Attachment"];
export type Reach = Schemas["Reach"];
export type Stuck = Schemas["StuckView"];
export type Leg = Schemas["Leg"];

/** The answer that each request gets, besides `refused`. */
interface Answers {
  send: "accepted";
  fetch: "inbox";
  members: "roster";
  channels: "channel_list";
  sub: "done";
  unsub: "done";
  read_history: "history";
  search: "history";
  follow: "receipts";
  read_receipts: "receipts";
  discard: "done";
  tail: "done";
  objectives: "objective_list";
  view_objective: "objective_view";
  create_objective: "objective";
  change_objective: "objective";
  tokens: "token_list";
  issue_token: "token_issued";
  revoke_token: "done";
  rotate_token: "issued";
  add_member: "issued";
  remove_member: "done";
  pause_thread: "done";
  resume_thread: "done";
  pauses: "pause_list";
  reach: "reached_by";
  read_activity: "activity_rows";
  follow_activity: "done";
  read_stuck: "stuck_list";
}
type Ask = keyof Answers;
type FrameOf<T> = Extract<ClientFrame, { t: T }>;
export type AnswerOf<T extends Ask> = Extract<HubFrame, { t: Answers[T] }>;
type Fields<T extends Ask> = Omit<FrameOf<T>, "t" | "n">;

/** The hub said no, and why. */
export class Refused extends Error {
  readonly code: string;
  readonly near: readonly string[];

  constructor(code: string, message: string, near: readonly string[] = []) {
    super(near.length ? `${message} (did you mean ${near.join(", ")}?)` : message);
    this.code = code;
    this.near = near;
  }
}

export type Link = "opening" | "live" | "lost" | "out";

interface Waiting {
  answered(frame: HubFrame): void;
  failed(error: Error): void;
}

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8000;

/** One connection that is made again whenever it is lost. */
export class Hub {
  /** State of the connection. */
  readonly link = signal<Link>("opening");
  /** Called whenever the connection is there, also again. */
  opened: () => void = () => undefined;
  /** Called with what was said. */
  said: (messages: readonly Message[]) => void = () => undefined;
  /** Called with what followed members did. */
  did: (rows: readonly Activity[]) => void = () => undefined;
  /** Called when a followed message took a step. */
  progressed: (step: Schemas["Progress"]) => void = () => undefined;

  private socket: WebSocket | null = null;
  private pause = FIRST_PAUSE_MS;
  private number = 0;
  private view = 0;
  private readonly waiting = new Map<number, Waiting>();

  open(): void {
    const address = new URL("/api/stream", location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => this.write({ t: "hello", v: 1 });
    socket.onmessage = (event: MessageEvent<string>) => {
      for (const frame of JSON.parse(event.data) as HubFrame[]) this.receive(frame);
    };
    socket.onclose = () => this.lost();
  }

  /** Give this connection up and make another, after a while. */
  again(): void {
    const socket = this.socket;
    if (!socket) return;
    this.pause = LONGEST_PAUSE_MS;
    // If the hub does not answer, a browser reports the end of a connection only after a long time.
    socket.onmessage = socket.onclose = null;
    socket.close();
    this.lost();
  }

  close(): void {
    this.link.value = "out";
    this.socket?.close();
  }

  /** Ask, and wait for the answer. Rejects with `Refused`, or with another error when the connection is lost. */
  ask<T extends Ask>(t: T, fields: Fields<T>): Promise<AnswerOf<T>> {
    const n = ++this.number;
    if (t === "tail") this.view = n;
    return new Promise((answered, failed) => {
      if (this.link.value !== "live") {
        failed(new Error("The hub is not reachable right now."));
        return;
      }
      this.waiting.set(n, { answered: answered as (frame: HubFrame) => void, failed });
      this.write({ ...fields, t, n } as unknown as ClientFrame);
    });
  }

  /** Say something that has no answer. */
  tell<T extends "ack">(t: T, fields: Omit<FrameOf<T>, "t">): void {
    if (this.link.value === "live") this.write({ ...fields, t } as ClientFrame);
  }

  private write(frame: ClientFrame): void {
    this.socket?.send(JSON.stringify([frame]));
  }

  private receive(frame: HubFrame): void {
    switch (frame.t) {
      case "welcome":
        this.pause = FIRST_PAUSE_MS;
        this.link.value = "live";
        this.opened();
        return;
      case "said":
        if (frame.n === this.view) this.said(frame.messages);
        return;
      case "did":
        this.did(frame.rows);
        return;
      case "progress":
        this.progressed(frame);
        return;
      case "refused":
        if (frame.n === undefined || frame.n === null) {
          if (frame.code === "unauthorized") this.link.value = "out";
          return;
        }
        this.take(frame.n)?.failed(new Refused(frame.code, frame.message, frame.near));
        return;
      default:
        if ("n" in frame) this.take(frame.n)?.answered(frame);
    }
  }

  private take(n: number): Waiting | undefined {
    const found = this.waiting.get(n);
    this.waiting.delete(n);
    return found;
  }

  private lost(): void {
    this.socket = null;
    for (const one of this.waiting.values()) one.failed(new Error("The connection to the hub was lost."));
    this.waiting.clear();
    if (this.link.value === "out") return;
    this.link.value = "lost";
    setTimeout(() => this.open(), this.pause * (1 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
  }
}
