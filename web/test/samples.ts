// Values of the hub's frames for tests, each with only what a test says of it.
import type { Member, Message, Objective } from "../src/hub.ts";
import type { Visitor } from "../src/state.ts";

export const message = (fields: Partial<Message> = {}): Message => ({
  id: `m${fields.offset ?? 0}`,
  offset: 0,
  from: "ada",
  target: "@me",
  body: "hello",
  protocol: "tieline",
  sent_at_ms: 0,
  ...fields,
});

export const objective = (fields: Partial<Objective> = {}): Objective => ({
  id: "o1",
  title: "Ship it",
  outcome: "It is shipped.",
  body: "",
  status: "active",
  originator: "ada",
  assignee: "ben",
  watchers: [],
  attachments: [],
  block_reason: null,
  result: null,
  completed_at_ms: null,
  created_at_ms: 0,
  updated_at_ms: 0,
  may: [],
  ...fields,
});

export const member = (name: string, fields: Partial<Member> = {}): Member =>
  ({ name, sessions: [], ...fields }) as Member;

export const visitor = (name: string, permissions: string[] = []): Visitor =>
  ({ member: name, kind: "human", permissions }) as unknown as Visitor;
