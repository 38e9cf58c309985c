// Devices that ask for a token: a person reads a code on the device, and a manager of members assigns it to a member.
import { useLayoutEffect, useState } from "preact/hooks";
import { type Device, approve, reject } from "./api.ts";
import { useDevices } from "./facts.ts";
import { plain } from "./plain.ts";
import { go, where } from "./route.ts";
import { attempt, may, members } from "./state.ts";

const said = (device: Device): string =>
  `${plain(device.label)} ${device.source ? `from ${device.source}` : ""}`.trim();

/** The member that a device is for. */
const Owner = () => (
  <label>
    for{" "}
    <select name="member" required>
      <option value="">Choose…</option>
      {members.value.map((member) => (
        <option key={member.name}>{plain(member.name)}</option>
      ))}
    </select>
  </label>
);

/** All devices that wait, as a part of the page of members. */
export function Devices() {
  const [waiting, read] = useDevices();
  if (!waiting.length) return null;
  return (
    <section class="sheet" aria-label="Devices">
      <h2>Devices that wait for a token</h2>
      {waiting.map((device) => (
        <form
          class="line"
          key={device.user_code}
          onSubmit={(event) => {
            event.preventDefault();
            const name = new FormData(event.currentTarget).get("member");
            void attempt(async () => {
              await approve(device.user_code, String(name));
              await read();
            }, "It has its token now.");
          }}
        >
          <code>{device.user_code}</code> {said(device)}
          <Owner />
          <button type="submit" class="main">
            Approve
          </button>
          <button
            type="button"
            onClick={() =>
              void attempt(async () => {
                await reject(device.user_code);
                await read();
              }, "Refused.")
            }
          >
            Refuse
          </button>
        </form>
      ))}
    </section>
  );
}

/** One device, by the code in the address: the link that the device shows leads here. */
export function OneDevice() {
  const [code, setCode] = useState(where.value.of);
  const [waiting] = useDevices();
  // Before the next painting, so that it does not replace text that is typed in between.
  useLayoutEffect(() => setCode(where.value.of), [where.value.of]);
  const device = waiting.find((one) => one.user_code === code.trim().toUpperCase());
  const decide = async (work: () => Promise<unknown>, done: string) => {
    if (await attempt(work, done)) go("members");
  };
  return (
    <section class="page">
      <header class="bar">
        <h1>Approve a device</h1>
      </header>
      {may("members.manage") ? (
        <form
          class="sheet"
          aria-label="Device"
          onSubmit={(event) => {
            event.preventDefault();
            const name = new FormData(event.currentTarget).get("member");
            void decide(() => approve(code.trim(), String(name)), "It has its token now.");
          }}
        >
          <p>Compare the code with the one that the device shows. Whoever has the device will act as the member.</p>
          <p class="line">
            <label>
              Code <input required value={code} onInput={(event) => setCode(event.currentTarget.value)} />
            </label>
            <Owner />
          </p>
          {code.trim() && (
            <p>{device ? said(device) || "A device without a name." : "No device with this code waits now."}</p>
          )}
          <p class="line">
            <button type="submit" class="main" disabled={!code.trim()}>
              Approve
            </button>
            <button
              type="button"
              disabled={!code.trim()}
              onClick={() => void decide(() => reject(code.trim()), "Refused.")}
            >
              Refuse
            </button>
          </p>
        </form>
      ) : (
        <p class="sheet">Only somebody who manages members can approve a device. Ask one of them to open this link.</p>
      )}
    </section>
  );
}
