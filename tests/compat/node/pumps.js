// Session pumps on one client of the unmodified JavaScript SDK: each holds one session, completes what comes, and after
// an error starts again without a pause. Prints {pump, body} for each message and {pump, error} for each error.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [queue, count] = [process.argv[2], Number(process.argv[3])];
const client = new ServiceBusClient(process.env.TWINBUS_CONNECTION_STRING, {
  retryOptions: { maxRetries: 0, timeoutInMs: 30000 },
});
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function pump(number) {
  for (;;) {
    let receiver;
    try {
      receiver = await client.acceptSession(queue, `session-${number}`);
      for (;;) {
        for (const message of await receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 })) {
          await receiver.completeMessage(message);
          say({ pump: number, body: message.body });
        }
      }
    } catch (error) {
      say({ pump: number, error: String(error.code ?? error) });
      await receiver?.close().catch(() => {});
    }
  }
}

for (let number = 0; number < count; number++) pump(number);
