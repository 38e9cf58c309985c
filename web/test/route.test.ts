import assert from "node:assert/strict";
import { test } from "node:test";
import { address, besides, go, where } from "../src/route.ts";

function visit(hash: string) {
  location.hash = hash;
  dispatchEvent(new Event("hashchange"));
  return where.value;
}

test("without an address one is at home", () => {
  assert.deepEqual(visit(""), { page: "home", of: "", message: "", at: null });
});

test("an address leads back to what it was made of", () => {
  const made = address("talk", "#dev/à b?", { id: "m 1", offset: 12 });
  assert.deepEqual(visit(made), { page: "talk", of: "#dev/à b?", message: "m 1", at: 12 });
});

test("a message is shown beside what one looks at", () => {
  visit("#/objectives/o1");
  assert.equal(besides({ id: "m1", offset: 3 }), "#/objectives/o1?m=m1&at=3");
  go("members", "ada");
  assert.equal(location.hash, "#/members/ada");
});

test("an address that was cut short is still an address", () => {
  assert.equal(visit("#/search/100%").of, "100%");
});

test("a position that is no offset is none", () => {
  for (const at of ["", "-1", "1.5", "1e9", "9".repeat(16), "x"])
    assert.equal(visit(`#/live?m=m1&at=${at}`).at, null, at);
});

test("the link of a device leads to its code", () => {
  // The hub answers `GET /enroll?code=…` with this address.
  assert.deepEqual(visit("#/devices/KQ4M-7P2H"), { page: "devices", of: "KQ4M-7P2H", message: "", at: null });
  assert.equal(visit("#/devices").of, "");
});
