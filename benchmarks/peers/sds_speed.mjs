// Two channels of the published @waku/sds, sender and receiver, that a benchmark drives in turns with ours.
//
// The argument is the folder of the installed package. A line of standard input is a number of messages to send and
// receive; it is answered by one line of JSON: CPU seconds of sending and of receiving, and messages delivered so far.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// Before Node.js 19 there was none.
globalThis.CustomEvent ??= class CustomEvent extends Event {
  constructor(type, options) {
    super(type, options);
    this.detail = options?.detail ?? null;
  }
};

const [folder, payloadBytes, syncEvery] = process.argv.slice(2);
const { Message, MessageChannel, MessageChannelEvent } = await import(
  pathToFileURL(`${folder}/dist/index.js`).href
);

const HINT = new Uint8Array(32);
const OPTIONS = { causalHistorySize: 2 };
const sender = new MessageChannel("bench", "alice", OPTIONS);
const receiver = new MessageChannel("bench", "bob", OPTIONS);
let sent = 0;
let delivered = 0;
receiver.addEventListener(MessageChannelEvent.InMessageDelivered, () => delivered++);

const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

async function turn(count) {
  let sendSeconds = 0;
  let receiveSeconds = 0;
  const payloads = [];
  for (let index = 0; index < count; index++) {
    const payload = new Uint8Array(Number(payloadBytes));
    new DataView(payload.buffer).setUint32(0, sent + index);
    payloads.push(payload);
  }
  for (const payload of payloads) {
    const wires = [];
    let began = cpuSeconds();
    sender.pushOutgoingMessage(payload, async (message) => {
      wires.push(message.encode());
      return { success: true, retrievalHint: HINT };
    });
    await sender.processTasks();
    sendSeconds += cpuSeconds() - began;
    began = cpuSeconds();
    for (const wire of wires) {
      receiver.pushIncomingMessage(Message.decode(wire), HINT);
      await receiver.processTasks();
    }
    receiveSeconds += cpuSeconds() - began;
    if (++sent % Number(syncEvery) === 0) {
      // The acknowledgement, which frees the sender's buffer; not timed.
      await receiver.pushOutgoingSyncMessage(async (message) => {
        sender.pushIncomingMessage(Message.decode(message.encode()));
        await sender.processTasks();
        return { success: true };
      });
    }
  }
  return { send: sendSeconds, receive: receiveSeconds, delivered };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await turn(Number(line)))}\n`);
}
