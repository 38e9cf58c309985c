// The real daemon of agent-relay, as its own command line starts it: `daemon.mjs FOLDER` listens on FOLDER/relay.sock.
//
// Its users have better-sqlite3, which is compiled so that a write-ahead log is not synced at each commit. That needs an
// install script, which we do not run, so the daemon takes Node's own SQLite. It gets the same setting here; without it the
// daemon would be slower than it is for its users.

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Daemon } from '@agent-relay/daemon';

const { exec } = DatabaseSync.prototype;
DatabaseSync.prototype.exec = function execAsItsUsersDo(sql) {
  exec.call(this, sql);
  if (/journal_mode/.test(sql)) exec.call(this, 'PRAGMA synchronous = NORMAL');
};

const [folder] = process.argv.slice(2);
const daemon = new Daemon({
  socketPath: join(folder, 'relay.sock'),
  pidFilePath: join(folder, 'relay.sock.pid'),
  storagePath: join(folder, 'relay.sqlite'),
  teamDir: folder,
  cloudSync: false,
});
await daemon.start();
process.on('SIGTERM', () => daemon.stop().finally(() => process.exit(0)));
