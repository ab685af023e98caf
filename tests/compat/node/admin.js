// The unmodified JavaScript administration client over HTTPS. Every scenario prints one JSON line {scenario, facts} or
// {scenario, error}; test_node_admin.py says what the facts must be.
"use strict";

const { ServiceBusAdministrationClient } = require("@azure/service-bus");

const client = new ServiceBusAdministrationClient(process.env.TWINBUS_CONNECTION_STRING);
const stranger = new ServiceBusAdministrationClient(process.env.TWINBUS_WRONG_CONNECTION_STRING);
const errorOf = (promise) => promise.then(() => "no error", (error) => `${error.code} ${error.statusCode}`);

async function namesOf(pages) {
  const found = [];
  for await (const page of pages) found.push(page.map((entry) => entry.name));
  return found;
}

const scenarios = {
  async queue() {
    const made = await client.createQueue("js/orders", { lockDuration: "PT30S", userMetadata: "<mine & yours>" });
    const queue = await client.getQueue("js/orders");
    queue.maxDeliveryCount = 4;
    queue.status = "SendDisabled";
    await client.updateQueue(queue);
    const changed = await client.getQueue("js/orders");
    const runtime = await client.getQueueRuntimeProperties("js/orders");
    const exists = [await client.queueExists("js/orders")];
    await client.deleteQueue("js/orders");
    exists.push(await client.queueExists("js/orders"));
    return {
      name: made.name,
      lockDuration: changed.lockDuration,
      userMetadata: changed.userMetadata,
      maxDeliveryCount: changed.maxDeliveryCount,
      status: changed.status,
      never: changed.defaultMessageTimeToLive,
      counts: [runtime.totalMessageCount, runtime.activeMessageCount, runtime.deadLetterMessageCount, runtime.scheduledMessageCount],
      created: runtime.createdAt instanceof Date && !Number.isNaN(runtime.createdAt.getTime()),
      exists,
    };
  },

  async keys() {
    const rule = { claimType: "SharedAccessKey", keyName: "shop", accessRights: ["Send"] };
    await client.createQueue("js-keys", { authorizationRules: [rule] });
    const [made] = (await client.getQueue("js-keys")).authorizationRules;
    return { keyName: made.keyName, rights: made.accessRights, primary: made.primaryKey.length, secondary: made.secondaryKey.length };
  },

  async forwarding() {
    await client.createQueue("js-target");
    await client.createQueue("js-forward", { forwardTo: "js-target", forwardDeadLetteredMessagesTo: "js-target" });
    const queue = await client.getQueue("js-forward");
    const before = new URL(queue.forwardTo).pathname;
    queue.forwardTo = undefined;
    await client.updateQueue(queue);
    const after = await client.getQueue("js-forward");
    return { before, after: after.forwardTo ?? null, dead: new URL(after.forwardDeadLetteredMessagesTo).pathname };
  },

  async pages() {
    for (let number = 0; number < 5; number++) await client.createTopic(`js-page${number}`);
    const pages = await namesOf(client.listTopics().byPage({ maxPageSize: 2 }));
    return { pages: pages.map((page) => page.filter((name) => name.startsWith("js-page"))).filter((page) => page.length) };
  },

  async namespace() {
    const properties = await client.getNamespaceProperties();
    return { name: properties.name, sku: properties.messagingSku };
  },

  async topic() {
    await client.createTopic("js/news", { defaultMessageTimeToLive: "P1D", supportOrdering: true });
    const made = await client.createSubscription("js/news", "all", { lockDuration: "PT20S" });
    await client.createSubscription("js/news", "some", {
      defaultRuleOptions: { name: "first", filter: { sqlExpression: "colour = 'red'" } },
    });
    const subscription = await client.getSubscription("js/news", "all");
    subscription.maxDeliveryCount = 9;
    await client.updateSubscription(subscription);
    const topic = await client.getTopic("js/news");
    topic.userMetadata = "mine";
    await client.updateTopic(topic);
    const runtime = await client.getTopicRuntimeProperties("js/news");
    const counts = await client.getSubscriptionRuntimeProperties("js/news", "all");
    const facts = {
      topicName: made.topicName,
      subscriptionName: made.subscriptionName,
      lockDuration: made.lockDuration,
      maxDeliveryCount: (await client.getSubscription("js/news", "all")).maxDeliveryCount,
      userMetadata: (await client.getTopic("js/news")).userMetadata,
      ttl: topic.defaultMessageTimeToLive,
      subscriptionCount: runtime.subscriptionCount,
      counts: [counts.totalMessageCount, counts.activeMessageCount, counts.transferMessageCount],
      subscriptions: [],
      defaultRule: (await client.getRule("js/news", "all", "$Default")).filter,
      firstRule: (await client.getRule("js/news", "some", "first")).filter.sqlExpression,
      exists: [await client.topicExists("js/news"), await client.subscriptionExists("js/news", "none")],
    };
    for await (const each of client.listSubscriptions("js/news")) facts.subscriptions.push(each.subscriptionName);
    await client.deleteSubscription("js/news", "some");
    facts.left = (await namesOf(client.listSubscriptions("js/news").byPage())).flat().length;
    return facts;
  },

  async rules() {
    await client.createTopic("js-rules");
    await client.createSubscription("js-rules", "s");
    const when = new Date(86400000);
    await client.createRule("js-rules", "s", "correlation", {
      correlationId: "c",
      applicationProperties: { text: "é", number: 1.5, yes: true, when },
    });
    await client.createRule("js-rules", "s", "sql", { sqlExpression: "a = @p", sqlParameters: { "@p": 5 } }, { sqlExpression: "SET b = 1" });
    const correlation = (await client.getRule("js-rules", "s", "correlation")).filter;
    const sql = await client.getRule("js-rules", "s", "sql");
    sql.filter.sqlExpression = "a > @p";
    await client.updateRule("js-rules", "s", sql);
    const again = await client.getRule("js-rules", "s", "sql");
    const names = (await namesOf(client.listRules("js-rules", "s").byPage())).flat();
    await client.deleteRule("js-rules", "s", "$Default");
    return {
      correlation: { id: correlation.correlationId, properties: { ...correlation.applicationProperties } },
      when: correlation.applicationProperties.when instanceof Date && correlation.applicationProperties.when.getTime() === when.getTime(),
      sql: [again.filter.sqlExpression, again.filter.sqlParameters["@p"], again.action.sqlExpression],
      names,
      exists: [await client.ruleExists("js-rules", "s", "sql"), await client.ruleExists("js-rules", "s", "$Default")],
    };
  },

  async refusals() {
    await client.createQueue("js-there");
    return {
      exists: await errorOf(client.createQueue("js-there")),
      topicThere: await errorOf(client.createTopic("js-there")),
      missing: await errorOf(client.getQueue("js-none")),
      deleteMissing: await errorOf(client.deleteQueue("js-none")),
      updateMissing: await errorOf(client.getQueue("js-there").then((queue) => client.updateQueue({ ...queue, name: "js-none" }))),
      value: await errorOf(client.createQueue("js-new", { lockDuration: "PT1H" })),
      subscription: await errorOf(client.createSubscription("js-none", "s")),
      stranger: await errorOf(stranger.getQueue("js-there")),
    };
  },
};

async function main() {
  await Promise.all(
    Object.entries(scenarios).map(async ([scenario, run]) => {
      const outcome = await run().then(
        (facts) => ({ facts }),
        (error) => ({ error: String(error.stack ?? error) }),
      );
      console.log(JSON.stringify({ scenario, ...outcome }));
    }),
  );
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
