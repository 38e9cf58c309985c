import assert from "node:assert/strict";
import { test } from "node:test";
import { asCommand, asCurl, asksAbout, asksAt, asksOf, asksOfWork, word } from "../src/asks.ts";

const NOW = 1_000_000_000;
const of = (page: string, what: string, everything = false) => asksOf({ page, of: what }, everything, NOW);
const commandOf = (page: string, what: string) => {
  const asks = of(page, what);
  return asks && asCommand(asks);
};

test("a page is a command and a request, quoted for a shell", () => {
  assert.deepEqual(of("talk", "#dev", true), {
    command: "tieline history '#dev'",
    path: "/api/messages?with=%23dev&everything=true",
  });
  assert.deepEqual(of("talk", "@ada", true), { command: "tieline history @ada", path: "/api/messages?with=%40ada" });
  assert.equal(of("live", "", true)?.path, "/api/messages?everything=true");
  assert.deepEqual(of("members", "ada"), { command: "tieline members", path: "/api/members?name=ada" });
  assert.deepEqual(of("home", ""), of("members", ""));
  assert.deepEqual(of("objectives", "o/1"), { command: "tieline objectives view o/1", path: "/api/objectives/o%2F1" });
  assert.deepEqual(of("objectives", ""), asksOfWork(""));
  assert.deepEqual(asksOfWork("ada b"), {
    command: "tieline objectives list --all --assignee='ada b'",
    path: "/api/objectives?assignee=ada+b",
  });
  assert.deepEqual(of("insights", ""), { command: "tieline pipeline report", path: "/api/insights" });
  assert.deepEqual(asksAbout({ id: "a/b", offset: 7 }), {
    command: "tieline receipts 7",
    path: "/api/messages/a%2Fb/receipts",
  });
  assert.equal(
    asCurl("http://hub:7117", { path: "/api/search?q=a&limit=5" }),
    `curl -H "Authorization: Bearer $TIELINE_TOKEN" 'http://hub:7117/api/search?q=a&limit=5'`,
  );
});

test("a thread, and what two others say, are picked from the answer", () => {
  const thread = asksAt('thread:it"s', true);
  assert.equal(
    asCommand(thread),
    String.raw`tieline history --json --limit 1000 | jq '.[] | select(.thread == "it\"s" or .id == "it\"s")'`,
  );
  assert.match(
    asCurl("http://hub", thread),
    /everything=true&limit=1000' \| jq '\.messages\[\] \| select\(\.thread == /,
  );
  const others = asksAt("ada ↔ ben", true);
  assert.equal(others.command, "tieline history --as=ada @ben");
  assert.equal(others.only, '(.from == "ada" and .target == "@ben") or (.from == "ben" and .target == "@ada")');
});

test("a search takes its filters along", () => {
  assert.equal(
    commandOf("search", "it's from:ada in:#dev since:7d"),
    String.raw`tieline search --from=ada --in='#dev' --since=7d 'it'\''s'`,
  );
  assert.equal(
    of("search", "leak from:ada in:#dev since:1m")?.path,
    `/api/search?q=leak&from=ada&in=%23dev&since=${NOW - 60_000}`,
  );
  assert.equal(
    commandOf("search", "leak protocol:ac7 has:file"),
    `tieline search --json --limit 1000 leak | jq '.[] | select(.protocol == "ac7" and (.attachments | length) > 0)'`,
  );
  assert.equal(commandOf("search", "in:@ben"), "tieline history @ben");
  assert.equal(
    commandOf("search", "from:ada since:1m in:talk"),
    `tieline history --json --limit 1000 | jq '.[] | select(.from == "ada" and (.thread == "talk" or .reply_to == "talk") and .sent_at_ms >= ${NOW - 60_000})'`,
  );
  assert.equal(of("search", ""), null);
});

test("text of others stays one word, is no option, and presses no key of the terminal", () => {
  assert.equal(word("$(rm -r x)"), "'$(rm -r x)'");
  assert.equal(word(""), "''");
  assert.equal(word("it's \\ \u0003\nrm"), String.raw`$'it\'s \\ \u0003\u000arm'`);
  assert.equal(commandOf("talk", "--token=x"), "tieline history -- --token=x");
  assert.equal(commandOf("search", "--as=root"), "tieline search -- --as=root");
});
