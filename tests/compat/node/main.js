// Runs the cases named on the command line and prints one line of JSON for each.
"use strict";

const assert = require("node:assert/strict");
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");
const WebSocket = require("ws");

const CONNECTION = process.env.COMPAT_TLS;
const WAIT = { maxWaitTimeInMs: 10000 };
const RETRIES = { retryOptions: { maxRetries: 1, retryDelayInMs: 500, timeoutInMs: 10000 } };

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function withClient(use, options = {}, connection = CONNECTION) {
  const client = new ServiceBusClient(connection, { ...RETRIES, ...options });
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

async function one(receiver) {
  const [message] = await receiver.receiveMessages(1, WAIT);
  assert.ok(message, "no message came");
  return message;
}

const put = (client, path, message) => client.createSender(path).sendMessages(message);

const cases = {
  send: () =>
    withClient(async (client) => {
      const day = 86400 * 1000;
      await put(client, "send", {
        body: "hello",
        messageId: "m1",
        timeToLive: day,
        applicationProperties: { n: 5 },
      });
      const receiver = client.createReceiver("send");
      const got = await one(receiver);
      assert.deepEqual([got.body, got.messageId, got.applicationProperties.n], ["hello", "m1", 5]);
      assert.equal(got.timeToLive, day);
      await receiver.completeMessage(got);
    }),

  batch: () =>
    withClient(async (client) => {
      const sender = client.createSender("batch");
      const batch = await sender.createMessageBatch();
      for (let number = 0; number < 100; number++) assert.ok(batch.tryAddMessage({ body: `b${number}` }));
      await sender.sendMessages(batch);
      const receiver = client.createReceiver("batch");
      const found = new Set();
      while (found.size < 100) {
        for (const message of await receiver.receiveMessages(100 - found.size, WAIT)) {
          found.add(message.body);
          await receiver.completeMessage(message);
        }
      }
    }),

  settle: () =>
    withClient(async (client) => {
      const receiver = client.createReceiver("settle");
      await put(client, "settle", { body: "abandoned" });
      await receiver.abandonMessage(await one(receiver));
      const again = await one(receiver);
      assert.equal(again.deliveryCount, 1);
      await receiver.completeMessage(again);
      await put(client, "settle", { body: "deferred" });
      const aside = await one(receiver);
      await receiver.deferMessage(aside);
      const [deferred] = await receiver.receiveDeferredMessages(aside.sequenceNumber);
      assert.equal(deferred.deliveryCount, 1);
      await receiver.completeMessage(deferred);
      await put(client, "settle", { body: "dead" });
      await receiver.deadLetterMessage(await one(receiver), { deadLetterReason: "why" });
      const dead = client.createReceiver("settle", { subQueueType: "deadLetter" });
      const letter = await one(dead);
      assert.equal(letter.deadLetterReason, "why");
      await dead.completeMessage(letter);
    }),

  "receive-and-delete": () =>
    withClient(async (client) => {
      await put(client, "delete", { body: "gone" });
      assert.equal((await one(client.createReceiver("delete", { receiveMode: "receiveAndDelete" }))).body, "gone");
      assert.deepEqual(await client.createReceiver("delete").peekMessages(1), []);
    }),

  peek: () =>
    withClient(async (client) => {
      await put(client, "peek", [{ body: "a" }, { body: "b" }]);
      const found = await client.createReceiver("peek").peekMessages(10);
      assert.deepEqual(found.map((message) => message.body), ["a", "b"]);
    }),

  renew: () =>
    withClient(async (client) => {
      await put(client, "renew", { body: "kept" });
      const receiver = client.createReceiver("renew", { maxAutoLockRenewalDurationInMs: 0 });
      const message = await one(receiver);
      await pause(3000);
      await receiver.renewMessageLock(message);
      await pause(3000);
      await receiver.completeMessage(message);
    }),

  sessions: () =>
    withClient(async (client) => {
      await put(client, "sessions", [
        { body: "one", sessionId: "s1" },
        { body: "two", sessionId: "s1" },
      ]);
      const receiver = await client.acceptNextSession("sessions");
      assert.equal(receiver.sessionId, "s1");
      for (const body of ["one", "two"]) {
        const message = await one(receiver);
        assert.equal(message.body, body);
        await receiver.completeMessage(message);
      }
      await receiver.setSessionState("state");
      await receiver.renewSessionLock();
      await receiver.close();
      const again = await client.acceptSession("sessions", "s1");
      assert.equal(await again.getSessionState(), "state");
    }),

  schedule: () =>
    withClient(async (client) => {
      const sender = client.createSender("schedule");
      await sender.scheduleMessages({ body: "soon" }, new Date(Date.now() + 2000));
      const never = await sender.scheduleMessages({ body: "never" }, new Date(Date.now() + 3600000));
      await sender.cancelScheduledMessages(never);
      const receiver = client.createReceiver("schedule");
      const message = await one(receiver);
      assert.deepEqual([message.body, message.state], ["soon", "scheduled"]);
      await receiver.completeMessage(message);
    }),

  topics: async () => {
    const admin = new ServiceBusAdministrationClient(CONNECTION);
    await admin.createTopic("node-topic");
    await admin.createSubscription("node-topic", "red");
    await admin.deleteRule("node-topic", "red", "$Default");
    await admin.createRule("node-topic", "red", "rule", { sqlExpression: "color = 'red'" }, { sqlExpression: "SET shade = 'dark'" });
    await withClient(async (client) => {
      for (const color of ["blue", "red"]) {
        await put(client, "node-topic", { body: color, applicationProperties: { color } });
      }
      const receiver = client.createReceiver("node-topic", "red");
      const message = await one(receiver);
      assert.deepEqual([message.body, message.applicationProperties.shade], ["red", "dark"]);
      await receiver.completeMessage(message);
    });
  },

  administration: async () => {
    const admin = new ServiceBusAdministrationClient(CONNECTION);
    const made = await admin.createQueue("node-made", { lockDuration: "PT30S", maxDeliveryCount: 3 });
    made.maxDeliveryCount = 4;
    assert.equal((await admin.updateQueue(made)).maxDeliveryCount, 4);
    assert.equal((await admin.getQueueRuntimeProperties("node-made")).totalMessageCount, 0);
    const names = [];
    for await (const queue of admin.listQueues()) names.push(queue.name);
    assert.ok(names.includes("node-made"));
    await admin.deleteQueue("node-made");
    assert.equal(await admin.queueExists("node-made"), false);
  },

  websocket: () =>
    withClient(
      async (client) => {
        await put(client, "websocket", { body: "through" });
        const receiver = client.createReceiver("websocket");
        await receiver.completeMessage(await one(receiver));
      },
      { webSocketOptions: { webSocket: WebSocket } },
    ),

  large: () =>
    withClient(async (client) => {
      const body = Buffer.alloc(5 * 1024 * 1024, 7);
      await put(client, "large", { body });
      const receiver = client.createReceiver("large");
      const message = await one(receiver);
      assert.ok(body.equals(message.body));
      await receiver.completeMessage(message);
    }),

  "wrong-key": () =>
    withClient(
      (client) => assert.rejects(put(client, "send", { body: "x" }), { code: "UnauthorizedAccess" }),
      { retryOptions: { maxRetries: 0 } },
      CONNECTION.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=wrong"),
    ),

  "missing-entity": () =>
    withClient((client) => assert.rejects(put(client, "none", { body: "x" }), { code: "MessagingEntityNotFound" })),

  // Sends and receives while somebody kills the broker; ends when every message has come.
  kill: () =>
    withClient(async (client) => {
      const count = Number(process.env.COMPAT_COUNT);
      const sending = (async () => {
        const sender = client.createSender("kill");
        for (let number = 0; number < count; number++) {
          for (;;) {
            try {
              await sender.sendMessages({ body: `k${number}` });
              break;
            } catch {
              await pause(200);
            }
          }
        }
      })();
      const found = new Set();
      const receiver = client.createReceiver("kill");
      while (found.size < count) {
        try {
          for (const message of await receiver.receiveMessages(20, { maxWaitTimeInMs: 2000 })) {
            // Noted first: the broker may die between the completion and its answer.
            found.add(message.body);
            console.log(JSON.stringify({ received: found.size }));
            await receiver.completeMessage(message);
          }
        } catch {
          await pause(200);
        }
      }
      await sending;
    }),
};

(async () => {
  let failed = false;
  for (const name of process.argv.slice(2)) {
    const line = { case: name, ok: true };
    try {
      await cases[name]();
    } catch (error) {
      failed = true;
      Object.assign(line, { ok: false, detail: String(error) });
    }
    console.log(JSON.stringify(line));
  }
  process.exit(failed ? 1 : 0);
})();
