// The unmodified JavaScript client in everyday use. Every scenario has a queue of its own, all run at once, and each
// prints one JSON line {scenario, facts} or {scenario, error}; test_node_sdk.py says what the facts must be.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

// No retries: an error must come through as the broker sent it.
const client = new ServiceBusClient(process.env.TWINBUS_CONNECTION_STRING, {
  retryOptions: { maxRetries: 0, timeoutInMs: 15000 },
});
// The client renews locks by itself unless told not to.
const unrenewed = { maxAutoLockRenewalDurationInMs: 0 };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const codeOf = (promise) => promise.then(() => "no error", (error) => error.code ?? String(error));

async function send(queue, messages) {
  const sender = client.createSender(queue);
  await sender.sendMessages(messages);
  await sender.close();
}

async function receive(receiver, count, patience = 5000) {
  const found = [];
  const deadline = Date.now() + patience;
  while (found.length < count && Date.now() < deadline) {
    found.push(...(await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: deadline - Date.now() })));
  }
  return found;
}

const bodies = (messages) => messages.map((message) => message.body);
const left = async (receiver) => (await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 })).length;

const scenarios = {
  async single(queue) {
    const message = {
      body: { answer: 42 },
      messageId: "id-1",
      correlationId: "correlation",
      subject: "subject",
      contentType: "application/json",
      to: "to",
      replyTo: "reply-to",
      replyToSessionId: "reply-to-session",
      partitionKey: "partition",
      timeToLive: 3600000,
      applicationProperties: { text: "é", whole: 7, negative: -7, fraction: 1.5, yes: true, nothing: null, when: new Date(86400000) },
    };
    await send(queue, message);
    const receiver = client.createReceiver(queue);
    const [got] = await receive(receiver, 1);
    await receiver.completeMessage(got);
    // The client works out the time to live from two clocks, and hands out dates as milliseconds.
    const ttlOff = Math.abs(got.timeToLive - message.timeToLive);
    delete message.timeToLive;
    message.applicationProperties.when = 86400000;
    return {
      different: Object.keys(message).filter((key) => JSON.stringify(message[key]) !== JSON.stringify(got[key])),
      ttlKept: ttlOff < 5000,
      deliveryCount: got.deliveryCount,
      sequenceNumber: got.sequenceNumber.toString(),
      state: got.state,
      lockSeconds: Math.round((got.lockedUntilUtc - got.enqueuedTimeUtc) / 1000),
      expirySeconds: Math.round((got.expiresAtUtc - got.enqueuedTimeUtc) / 1000),
      tokenShape: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(got.lockToken),
      left: await left(receiver),
    };
  },

  async batch(queue) {
    const sender = client.createSender(queue);
    const batch = await sender.createMessageBatch();
    for (let number = 0; number < 100; number++) batch.tryAddMessage({ body: number });
    await sender.sendMessages(batch);
    await sender.sendMessages([{ body: 100 }, { body: 101 }]);
    const receiver = client.createReceiver(queue);
    const got = await receive(receiver, 102);
    await Promise.all(got.map((message) => receiver.completeMessage(message)));
    return { maxSize: batch.maxSizeInBytes, ordered: bodies(got).every((body, index) => body === index), count: got.length, left: await left(receiver) };
  },

  async large(queue) {
    const body = Buffer.alloc(200 * 1024, "x");
    await send(queue, { body });
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const [got] = await receive(receiver, 1);
    const tooLarge = await codeOf(send(queue, { body: Buffer.alloc(300 * 1024, "x") }));
    return { same: Buffer.compare(Buffer.from(got.body), body) === 0, tooLarge };
  },

  async noMessageId(queue) {
    await send(queue, { body: "a" });
    const receiver = client.createReceiver(queue);
    const [got] = await receive(receiver, 1);
    await receiver.completeMessage(got);
    return { hasId: String(got.messageId ?? "").length > 0, left: await left(receiver) };
  },

  async abandon(queue) {
    await send(queue, { body: "a", applicationProperties: { kept: "yes" } });
    const receiver = client.createReceiver(queue);
    const [first] = await receive(receiver, 1);
    await receiver.abandonMessage(first, { seen: "once" });
    const [second] = await receive(receiver, 1);
    await receiver.completeMessage(second);
    return { counts: [first.deliveryCount, second.deliveryCount], properties: second.applicationProperties, left: await left(receiver) };
  },

  async maxDeliveryCount(queue) {
    await send(queue, { body: "a" });
    const receiver = client.createReceiver(queue);
    const counts = [];
    for (let round = 0; round < 10; round++) {
      const [got] = await receive(receiver, 1);
      counts.push(got.deliveryCount);
      await receiver.abandonMessage(got);
    }
    const emptied = await left(receiver);
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [got] = await receive(dead, 1);
    await dead.completeMessage(got);
    return { counts, left: emptied, reason: got.deadLetterReason, description: got.deadLetterErrorDescription };
  },

  async defer(queue) {
    await send(queue, [{ body: "a" }, { body: "b" }]);
    const receiver = client.createReceiver(queue);
    const got = await receive(receiver, 2);
    await receiver.deferMessage(got[0], { later: "yes" });
    await receiver.completeMessage(got[1]);
    const skipped = await left(receiver);
    const [deferred] = await receiver.receiveDeferredMessages(got[0].sequenceNumber);
    await receiver.completeMessage(deferred);
    const gone = await codeOf(receiver.receiveDeferredMessages(got[0].sequenceNumber));
    return { left: skipped, body: deferred.body, state: deferred.state, properties: deferred.applicationProperties, gone };
  },

  async deadLetter(queue) {
    await send(queue, { body: "a", applicationProperties: { kept: 1 } });
    const receiver = client.createReceiver(queue);
    const [got] = await receive(receiver, 1);
    await receiver.deadLetterMessage(got, { deadLetterReason: "bad", deadLetterErrorDescription: "very bad", extra: "x" });
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [peeked] = await dead.peekMessages(1);
    const [buried] = await receive(dead, 1);
    await dead.completeMessage(buried);
    return {
      left: await left(receiver),
      peeked: peeked.deadLetterReason,
      reason: buried.deadLetterReason,
      description: buried.deadLetterErrorDescription,
      properties: buried.applicationProperties,
      sameNumber: buried.sequenceNumber.equals(got.sequenceNumber),
      leftDead: await left(dead),
    };
  },

  async sessionById(queue) {
    await send(queue, [{ body: "a1", sessionId: "a" }, { body: "b1", sessionId: "b" }, { body: "a2", sessionId: "a" }]);
    const session = await client.acceptSession(queue, "a");
    const before = session.sessionLockedUntilUtc;
    const locked = await codeOf(client.acceptSession(queue, "a"));
    const got = await receive(session, 2);
    const fresh = await session.getSessionState();
    await session.setSessionState({ step: 1 });
    const state = await session.getSessionState();
    await session.setSessionState(null);
    const cleared = await session.getSessionState();
    await sleep(50);
    const renewed = await session.renewSessionLock();
    const peeked = await session.peekMessages(10);
    for (const message of got) await session.completeMessage(message);
    await session.close();
    const again = await client.acceptSession(queue, "a");
    await again.close();
    return { id: session.sessionId, locked, bodies: bodies(got), fresh, state, cleared, renewed: renewed > before, peeked: bodies(peeked), again: again.sessionId };
  },

  async sessionDefer(queue) {
    await send(queue, { body: "a", sessionId: "a" });
    const session = await client.acceptSession(queue, "a");
    const [got] = await receive(session, 1);
    await session.deferMessage(got);
    const [deferred] = await session.receiveDeferredMessages([got.sequenceNumber]);
    await session.deadLetterMessage(deferred, { deadLetterReason: "late", deadLetterErrorDescription: "too late" });
    await session.close();
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [buried] = await receive(dead, 1);
    await dead.completeMessage(buried);
    return { state: deferred.state, reason: buried.deadLetterReason, sessionId: buried.sessionId };
  },

  async sessionNext(queue) {
    await send(queue, [{ body: 1, sessionId: "x" }, { body: 2, sessionId: "y" }]);
    const one = await client.acceptNextSession(queue);
    const two = await client.acceptNextSession(queue);
    const impatient = new ServiceBusClient(process.env.TWINBUS_CONNECTION_STRING, { retryOptions: { maxRetries: 0, timeoutInMs: 2000 } });
    const started = Date.now();
    const none = await codeOf(impatient.acceptNextSession(queue));
    const waited = Date.now() - started;
    const late = client.acceptNextSession(queue);
    await sleep(200);
    await send(queue, { body: 3, sessionId: "z" });
    const three = await late;
    const ids = [one.sessionId, two.sessionId, three.sessionId];
    await Promise.all([one.close(), two.close(), three.close(), impatient.close()]);
    return { ids, none, waited };
  },

  async sessionMissing(queue) {
    const plain = await codeOf(send(queue, { body: "no session" }));
    const receiver = client.createReceiver(queue);
    const receiving = await codeOf(receiver.receiveMessages(1, { maxWaitTimeInMs: 500 }));
    return { plain, receiving };
  },

  async sessionLockLost(queue) {
    await send(queue, { body: "a", sessionId: "a" });
    const session = await client.acceptSession(queue, "a", unrenewed);
    const [got] = await receive(session, 1);
    await sleep(6000);
    const lost = await codeOf(session.completeMessage(got));
    const again = await client.acceptSession(queue, "a");
    const [second] = await receive(again, 1);
    await again.completeMessage(second);
    await again.close();
    return { lost, deliveryCount: second.deliveryCount };
  },

  async schedule(queue) {
    const sender = client.createSender(queue);
    const due = new Date(Date.now() + 2000);
    const [kept, cancelled] = await sender.scheduleMessages([{ body: "kept" }, { body: "cancelled" }], due);
    await sender.cancelScheduledMessages(cancelled);
    const unknown = await codeOf(sender.cancelScheduledMessages(cancelled));
    const receiver = client.createReceiver(queue);
    const peeked = await receiver.peekMessages(10);
    const early = await left(receiver);
    const [got] = await receive(receiver, 1);
    const lateMs = Date.now() - due.getTime();
    await receiver.completeMessage(got);
    return {
      peeked: peeked.map((message) => [message.body, message.state]),
      early,
      body: got.body,
      newNumber: got.sequenceNumber.greaterThan(kept),
      enqueuedAfterDue: got.enqueuedTimeUtc >= due,
      lateMs,
      unknown,
      left: await left(receiver),
    };
  },

  async peek(queue) {
    await send(queue, [0, 1, 2, 3, 4].map((body) => ({ body })));
    const receiver = client.createReceiver(queue);
    const first = await receiver.peekMessages(3);
    const next = await receiver.peekMessages(3);
    const from = await receiver.peekMessages(1, { fromSequenceNumber: first[1].sequenceNumber });
    const nothing = await receiver.peekMessages(1, { fromSequenceNumber: next[1].sequenceNumber.add(1) });
    const got = await receive(receiver, 5);
    await Promise.all(got.map((message) => receiver.completeMessage(message)));
    return { first: bodies(first), next: bodies(next), from: bodies(from), nothing: nothing.length, locked: first[0].lockedUntilUtc ?? null, received: bodies(got) };
  },

  async receiveAndDelete(queue) {
    await send(queue, [{ body: "a" }, { body: "b" }]);
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const got = await receive(receiver, 2);
    const peeked = await receiver.peekMessages(1, { fromSequenceNumber: got[0].sequenceNumber });
    return { bodies: bodies(got), peeked: peeked.length };
  },

  async renew(queue) {
    await send(queue, { body: "a" });
    const receiver = client.createReceiver(queue, unrenewed);
    const [got] = await receive(receiver, 1);
    const before = got.lockedUntilUtc;
    await sleep(3000);
    const after = await receiver.renewMessageLock(got);
    await sleep(3000); // beyond the first lock
    await receiver.completeMessage(got);
    return { gainedMs: after - before, left: await left(receiver) };
  },

  async lockLost(queue) {
    await send(queue, { body: "a" });
    const receiver = client.createReceiver(queue, unrenewed);
    const [got] = await receive(receiver, 1);
    await sleep(6000);
    const settle = await codeOf(receiver.completeMessage(got));
    const renew = await codeOf(receiver.renewMessageLock(got));
    const [second] = await receive(receiver, 1);
    await receiver.completeMessage(second);
    return { settle, renew, deliveryCount: second.deliveryCount };
  },

  async expiry(queue) {
    await send(queue, { body: "a", timeToLive: 1000 });
    await sleep(1500);
    const receiver = client.createReceiver(queue);
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [got] = await receive(dead, 1);
    await dead.completeMessage(got);
    return { left: await left(receiver), reason: got.deadLetterReason };
  },

  async duplicates(queue) {
    await send(queue, { body: 1, messageId: "same" });
    await send(queue, [{ body: 2, messageId: "same" }, { body: 3, messageId: "other" }]);
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const got = await receive(receiver, 2);
    return { bodies: bodies(got), left: await left(receiver) };
  },

  async subscribe(queue) {
    await send(queue, Array.from({ length: 30 }, (_, body) => ({ body })));
    const receiver = client.createReceiver(queue);
    const got = [];
    const errors = [];
    let running = 0;
    let most = 0;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, 10000);
      receiver.subscribe(
        {
          processMessage: async (message) => {
            most = Math.max(most, ++running);
            got.push(message.body);
            await sleep(5);
            running--;
            if (got.length === 30) {
              clearTimeout(timer);
              setTimeout(resolve, 300); // the client completes after the handler returned
            }
          },
          processError: async (context) => errors.push(String(context.error)),
        },
        { maxConcurrentCalls: 5 },
      );
    });
    await receiver.close();
    const rest = client.createReceiver(queue);
    return { count: new Set(got).size, most, errors, left: await left(rest) };
  },

  async notFound() {
    const receiver = client.createReceiver("no-such-queue");
    return {
      send: await codeOf(send("no-such-queue", { body: "a" })),
      receive: await codeOf(receiver.receiveMessages(1, { maxWaitTimeInMs: 500 })),
      peek: await codeOf(receiver.peekMessages(1)),
    };
  },
};

async function main() {
  await Promise.all(
    Object.entries(scenarios).map(async ([scenario, run]) => {
      const started = Date.now();
      const outcome = await run(`node-${scenario.toLowerCase()}`).then(
        (facts) => ({ facts }),
        (error) => ({ error: String(error.stack ?? error) }),
      );
      console.log(JSON.stringify({ scenario, seconds: (Date.now() - started) / 1000, ...outcome }));
    }),
  );
  await client.close();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
