// Submits one task over NATS and prints, as JSON lines, what became of it. Needs `@nats-io/transport-node` alone.
//
//   node publish.mjs bare|binary|structured < task.json
//
// NATS_URL NATS_USER NATS_PASSWORD NATS_INBOX_PREFIX   where to connect, and the only inbox this user may listen on
// PROJECT                                              whose task it is (default: default)
// WAIT_S                                               how long to wait for the end (default: 60; 0 = only submit)
//
// Exit code: 0 completed (or only submitted), 1 ended otherwise, 2 usage, 3 no end in time.

import { randomUUID } from "node:crypto";
import { text } from "node:stream/consumers";
import { connect, headers } from "@nats-io/transport-node";

const TYPE = "counterpoint.task.submit.v1";
const SOURCE = "https://etl.example.net/foreign-publisher";
const ENDS = { completed: 0, failed: 1, cancelled: 1, rejected: 1 };

const mode = process.argv[2];
if (!["bare", "binary", "structured"].includes(mode)) {
  console.error("usage: node publish.mjs bare|binary|structured < task.json");
  process.exit(2);
}
const project = process.env.PROJECT ?? "default";
const waitSeconds = Number(process.env.WAIT_S ?? "60");

// The task's id is ours to choose. With it we know our task among the project's.
const task = { task_id: randomUUID(), ...JSON.parse(await text(process.stdin)) };

const connection = await connect({
  servers: process.env.NATS_URL,
  user: process.env.NATS_USER,
  pass: process.env.NATS_PASSWORD,
  inboxPrefix: process.env.NATS_INBOX_PREFIX,
});

// Listen first, so that nothing is missed; `flush` returns when the server knows of it.
const live = connection.subscribe(`live.tasks.${project}.>`);
await connection.flush();

const { payload, options } = encode(mode, task);
const stored = await connection.request(`intake.${project}.task`, payload, { timeout: 5000, ...options });
const ack = stored.json();
if (ack.error) {
  throw new Error(`not stored: ${ack.error.description}`);
}
print({ event: "stored", mode, task_id: task.task_id, stream: ack.stream, sequence: ack.seq });

let code = waitSeconds > 0 ? 3 : 0;
if (waitSeconds > 0) {
  const timer = setTimeout(() => live.unsubscribe(), waitSeconds * 1000);
  for await (const message of live) {
    const data = message.json();
    if (data.task_id !== task.task_id) {
      continue;
    }
    const event = message.subject.split(".").at(-1);
    print({ event, type: message.headers?.get("ce-type"), data });
    if (event in ENDS) {
      code = ENDS[event];
      break;
    }
  }
  clearTimeout(timer);
}
await connection.drain();
process.exitCode = code;

function encode(mode, task) {
  const attributes = {
    specversion: "1.0",
    id: randomUUID(),
    type: TYPE,
    source: SOURCE,
    time: new Date().toISOString(),
    datacontenttype: "application/json",
  };
  const sent = headers();
  if (mode === "bare") {
    return { payload: JSON.stringify(task), options: {} };
  }
  if (mode === "binary") {
    for (const [name, value] of Object.entries(attributes)) {
      sent.set(`ce-${name}`, value);
    }
    return { payload: JSON.stringify(task), options: { headers: sent } };
  }
  sent.set("content-type", "application/cloudevents+json");
  return { payload: JSON.stringify({ ...attributes, data: task }), options: { headers: sent } };
}

function print(line) {
  console.log(JSON.stringify(line));
}
