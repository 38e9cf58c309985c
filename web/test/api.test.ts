import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { dropToken, EXPIRED, fetchToken, fileAddress, sendFiles, upload } from "../src/api.ts";

/** Answer the next requests, and keep what was asked. */
function answering(status: number, said: unknown) {
  const respond = async () => (status === 204 ? new Response(null, { status }) : Response.json(said, { status }));
  const asked = mock.method(globalThis, "fetch", respond as typeof fetch);
  return () => {
    const [call] = asked.mock.calls;
    assert.ok(call);
    const [address, init] = call.arguments as [string, RequestInit];
    return { address, method: init.method, body: init.body };
  };
}

test("a file's address cannot lead out of the files", () => {
  assert.equal(fileAddress("/ada/a b.txt"), "/api/files/ada/a%20b.txt");
  assert.equal(fileAddress("/../../api/./session"), "/api/files/api/session");
  assert.equal(fileAddress("//$&/x"), "/api/files/%24%26/x");
});

test("an uploaded file gets a name that any path can have", async () => {
  const entry = { path: "/me/console/a-b.txt", name: "a-b.txt", size: 2, media_type: "" };
  const asked = answering(200, entry);
  const kept = await upload(new File(["hi"], "../a b.txt"), "me");
  assert.equal(new URL(asked().address, "http://x").searchParams.get("path"), "/me/console/..-a-b.txt");
  assert.deepEqual(kept, entry);
});

test("files are sent by their paths, beside what is said", async () => {
  const asked = answering(200, { recipients: 3 });
  assert.equal(await sendFiles({ target: "#dev", body: "see" }, [{ path: "/a", name: "a", size: 1 }]), 3);
  assert.deepEqual(JSON.parse(String(asked().body)), { target: "#dev", body: "see", files: ["/a"] });
});

test("what stands in braces in a path is encoded", async () => {
  const asked = answering(204, null);
  await dropToken("a/1 2");
  assert.deepEqual(asked(), { address: "/api/tokens/a%2F1%202", method: "DELETE", body: undefined });
});

test("a request for a token goes on until it is decided", async () => {
  const told = async (status: number, said: unknown) => {
    answering(status, said);
    return fetchToken("code");
  };
  assert.deepEqual(await told(400, { error: "authorization_pending" }), { wait: "yes" });
  assert.deepEqual(await told(400, { error: "slow_down" }), { wait: "slower" });
  assert.deepEqual(await told(503, "no JSON object"), { wait: "slower" });
  assert.deepEqual(await told(400, { error: "expired_token" }), { wait: "no", why: EXPIRED });
  assert.deepEqual(await told(400, { error: "access_denied" }), { wait: "no", why: "You were refused." });
  assert.deepEqual(await told(400, { error: "access_denied", error_description: "no" }), {
    wait: "no",
    why: "You were refused: no",
  });
  assert.deepEqual(await told(200, { token: "t", token_id: "1" }), { token: "t", tokenId: "1" });
});
