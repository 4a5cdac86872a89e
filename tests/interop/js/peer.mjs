// The published MessageChannel of @waku/sds as a process that the tests drive.
//
// Every line of standard input is a command in JSON, {"do": name, "now_ms": time, ...}, and is answered by one line of
// JSON: the messages that it put on the wire, the events that the channel raised, and what else the command asked for.
// Bytes are base64. The process ends when its input does.
//
// The packages run as they were published. Two globals are set before they are imported: Date.now, so that the test
// owns the time, and, where Node.js has none (before 19), CustomEvent.

import { createInterface } from "node:readline";

let nowMs = 0;
Date.now = () => nowMs;
globalThis.CustomEvent ??= class CustomEvent extends Event {
  constructor(type, options) {
    super(type, options);
    this.detail = options?.detail ?? null;
  }
};

const { Message, MessageChannel, MessageChannelEvent } = await import("@waku/sds");

// Events that the package raises under these names, unlike those it declares.
const UNDECLARED_EVENTS = ["RepairRequestQueued", "RepairResponseQueued"];

let channel;
let events = [];
let wires = [];

const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const text = (data) => Buffer.from(data).toString("base64");
const optionalBytes = (value) => (value ? bytes(value) : undefined);

// The message ids that an event is about; of a failed task, what went wrong.
function subjects(detail) {
  if (detail?.error) return [String(detail.error)];
  if (Array.isArray(detail)) return detail.map((entry) => entry.messageId);
  if (detail?.messageIds) return detail.messageIds;
  return [typeof detail === "string" ? detail : detail.messageId];
}

function entry({ messageId, retrievalHint, senderId }) {
  return {
    message_id: messageId,
    sender_id: senderId ?? null,
    hint: retrievalHint ? text(retrievalHint) : null,
  };
}

// A transport that takes everything, and says under which hash, if it is told one.
function transport(hint) {
  return async (message) => {
    wires.push(text(message.encode()));
    return { success: true, retrievalHint: optionalBytes(hint) };
  };
}

const commands = {
  create({ channel_id, sender_id, options }) {
    channel = new MessageChannel(channel_id, sender_id, options);
    for (const name of [...Object.values(MessageChannelEvent), ...UNDECLARED_EVENTS]) {
      channel.addEventListener(name, ({ detail }) => events.push([name, subjects(detail)]));
    }
  },

  async send({ payload, hint }) {
    channel.pushOutgoingMessage(bytes(payload), transport(hint));
    await channel.processTasks();
  },

  async send_ephemeral({ payload }) {
    await channel.pushOutgoingEphemeralMessage(bytes(payload), transport());
    await channel.processTasks();
  },

  // Sends again what is not acknowledged, as the layer above does: the payload is pushed once more.
  async resend() {
    const { unacknowledged, possiblyAcknowledged } = channel.sweepOutgoingBuffer();
    for (const message of [...unacknowledged, ...possiblyAcknowledged]) {
      channel.pushOutgoingMessage(message.content, transport());
    }
    await channel.processTasks();
  },

  async receive({ message, hint }) {
    const decoded = Message.decode(bytes(message));
    if (decoded === undefined) throw new Error("not an SDS message");
    channel.pushIncomingMessage(decoded, optionalBytes(hint));
    await channel.processTasks();
  },

  sweep() {
    return { missing: channel.sweepIncomingBuffer().map(entry) };
  },

  async sync() {
    return { sent: await channel.pushOutgoingSyncMessage(transport()) };
  },

  async repair() {
    await channel.sweepRepairIncomingBuffer(transport());
  },

  state() {
    return {
      lamport: Number(channel.lamportTimestamp),
      history: channel.localHistory.slice(0).map((message) => ({
        message_id: message.messageId,
        sender_id: message.senderId,
        lamport: Number(message.lamportTimestamp),
        content: text(message.content),
      })),
      outgoing: channel.outgoingBuffer.map((message) => message.messageId),
      incoming: channel.incomingBuffer.map((message) => message.messageId),
    };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  events = [];
  wires = [];
  let answer;
  try {
    const command = JSON.parse(line);
    nowMs = command.now_ms;
    answer = (await commands[command.do](command)) ?? {};
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify({ ...answer, events, wires })}\n`);
}
