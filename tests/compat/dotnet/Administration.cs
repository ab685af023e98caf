using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

/// <summary>Entities, their settings and their rules, each created, updated and read back.</summary>
public static class Administration
{
    public static async Task Queues()
    {
        var administrator = Bus.Administrator();
        var name = Bus.Name("made");
        var options = new CreateQueueOptions(name) { LockDuration = TimeSpan.FromSeconds(30), MaxDeliveryCount = 3 };
        QueueProperties made = await administrator.CreateQueueAsync(options);
        Check.Same(3, made.MaxDeliveryCount);
        made.MaxDeliveryCount = 4;
        Check.Same(4, (await administrator.UpdateQueueAsync(made)).Value.MaxDeliveryCount);
        Check.Same(0L, (await administrator.GetQueueRuntimePropertiesAsync(name)).Value.TotalMessageCount);
        var names = new List<string>();
        await foreach (var queue in administrator.GetQueuesAsync())
        {
            names.Add(queue.Name);
        }
        Check.True(names.Contains(name), "it is not listed");
        await administrator.DeleteQueueAsync(name);
        Check.True(!await administrator.QueueExistsAsync(name), "it is still there");
    }

    public static async Task QueueSettings()
    {
        var administrator = Bus.Administrator();
        var target = await Bus.Queue();
        var options = new CreateQueueOptions(Bus.Name("made"))
        {
            AutoDeleteOnIdle = TimeSpan.FromDays(7),
            DefaultMessageTimeToLive = TimeSpan.FromDays(2),
            DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(3),
            DeadLetteringOnMessageExpiration = true,
            EnableBatchedOperations = false,
            ForwardDeadLetteredMessagesTo = target,
            LockDuration = TimeSpan.FromSeconds(45),
            MaxDeliveryCount = 8,
            MaxMessageSizeInKilobytes = 102400,
            MaxSizeInMegabytes = 2048,
            RequiresDuplicateDetection = true,
            RequiresSession = true,
            UserMetadata = "<metadata & more>",
        };
        options.AuthorizationRules.Add(
            new SharedAccessAuthorizationRule("listener", new[] { AccessRights.Listen, AccessRights.Send }));
        QueueProperties made = await administrator.CreateQueueAsync(options);
        // The service answers with whole addresses where a name was given.
        Check.True(made.ForwardDeadLetteredMessagesTo.EndsWith(target), made.ForwardDeadLetteredMessagesTo);
        options.ForwardDeadLetteredMessagesTo = made.ForwardDeadLetteredMessagesTo;
        Check.Same(options, new CreateQueueOptions(made));
        QueueProperties read = await administrator.GetQueueAsync(options.Name);
        Check.Same(made, read);
        read.AutoDeleteOnIdle = TimeSpan.FromDays(8);
        read.DefaultMessageTimeToLive = TimeSpan.FromDays(3);
        read.DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(4);
        read.DeadLetteringOnMessageExpiration = false;
        read.EnableBatchedOperations = true;
        read.ForwardDeadLetteredMessagesTo = null;
        read.LockDuration = TimeSpan.FromSeconds(50);
        read.MaxDeliveryCount = 9;
        read.MaxMessageSizeInKilobytes = 10240;
        read.MaxSizeInMegabytes = 4096;
        read.Status = EntityStatus.SendDisabled;
        read.UserMetadata = "others";
        read.AuthorizationRules.Clear();
        read.AuthorizationRules.Add(new SharedAccessAuthorizationRule("manager", new[]
        {
            AccessRights.Manage, AccessRights.Listen, AccessRights.Send,
        }));
        var changed = new CreateQueueOptions(read);
        QueueProperties updated = await administrator.UpdateQueueAsync(read);
        Check.Same(changed, new CreateQueueOptions(updated));
        Check.Same(changed, new CreateQueueOptions(await administrator.GetQueueAsync(options.Name)));
        await administrator.DeleteQueueAsync(options.Name);
    }

    public static async Task TopicSettings()
    {
        var administrator = Bus.Administrator();
        var options = new CreateTopicOptions(Bus.Name("topic"))
        {
            AutoDeleteOnIdle = TimeSpan.FromDays(7),
            DefaultMessageTimeToLive = TimeSpan.FromDays(2),
            DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(3),
            EnableBatchedOperations = false,
            MaxMessageSizeInKilobytes = 102400,
            MaxSizeInMegabytes = 2048,
            RequiresDuplicateDetection = true,
            SupportOrdering = true,
            UserMetadata = "metadata",
        };
        options.AuthorizationRules.Add(new SharedAccessAuthorizationRule("sender", new[] { AccessRights.Send }));
        TopicProperties made = await administrator.CreateTopicAsync(options);
        Check.Same(options, new CreateTopicOptions(made));
        TopicProperties read = await administrator.GetTopicAsync(options.Name);
        Check.Same(made, read);
        read.AutoDeleteOnIdle = TimeSpan.FromDays(8);
        read.DefaultMessageTimeToLive = TimeSpan.FromDays(3);
        read.DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(4);
        read.EnableBatchedOperations = true;
        read.MaxMessageSizeInKilobytes = 10240;
        read.MaxSizeInMegabytes = 4096;
        read.Status = EntityStatus.SendDisabled;
        read.SupportOrdering = false;
        read.UserMetadata = "others";
        read.AuthorizationRules.Clear();
        var changed = new CreateTopicOptions(read);
        Check.Same(changed, new CreateTopicOptions(await administrator.UpdateTopicAsync(read)));
        Check.Same(changed, new CreateTopicOptions(await administrator.GetTopicAsync(options.Name)));
        await administrator.DeleteTopicAsync(options.Name);
    }

    public static async Task SubscriptionSettings()
    {
        var administrator = Bus.Administrator();
        var target = await Bus.Queue();
        var topic = Bus.Name("topic");
        await administrator.CreateTopicAsync(topic);
        var options = new CreateSubscriptionOptions(topic, "subscription")
        {
            AutoDeleteOnIdle = TimeSpan.FromDays(7),
            DefaultMessageTimeToLive = TimeSpan.FromDays(2),
            DeadLetteringOnMessageExpiration = true,
            EnableBatchedOperations = false,
            EnableDeadLetteringOnFilterEvaluationExceptions = false,
            ForwardDeadLetteredMessagesTo = target,
            LockDuration = TimeSpan.FromSeconds(45),
            MaxDeliveryCount = 8,
            RequiresSession = true,
            UserMetadata = "metadata",
        };
        SubscriptionProperties made = await administrator.CreateSubscriptionAsync(options);
        Check.True(made.ForwardDeadLetteredMessagesTo.EndsWith(target), made.ForwardDeadLetteredMessagesTo);
        options.ForwardDeadLetteredMessagesTo = made.ForwardDeadLetteredMessagesTo;
        Check.Same(options, new CreateSubscriptionOptions(made));
        SubscriptionProperties read = await administrator.GetSubscriptionAsync(topic, "subscription");
        Check.Same(made, read);
        read.AutoDeleteOnIdle = TimeSpan.FromDays(8);
        read.DefaultMessageTimeToLive = TimeSpan.FromDays(3);
        read.DeadLetteringOnMessageExpiration = false;
        read.EnableBatchedOperations = true;
        read.EnableDeadLetteringOnFilterEvaluationExceptions = true;
        read.ForwardDeadLetteredMessagesTo = null;
        read.LockDuration = TimeSpan.FromSeconds(50);
        read.MaxDeliveryCount = 9;
        read.Status = EntityStatus.ReceiveDisabled;
        read.UserMetadata = "others";
        var changed = new CreateSubscriptionOptions(read);
        Check.Same(changed, new CreateSubscriptionOptions(await administrator.UpdateSubscriptionAsync(read)));
        Check.Same(
            changed, new CreateSubscriptionOptions(await administrator.GetSubscriptionAsync(topic, "subscription")));
        await administrator.DeleteSubscriptionAsync(topic, "subscription");
        Check.True(!await administrator.SubscriptionExistsAsync(topic, "subscription"), "it is still there");
    }

    /// <summary>A filter with every field and every type. A rule manager cannot encode a time span.</summary>
    private static CorrelationRuleFilter Correlation(bool managed = false)
    {
        var filter = new CorrelationRuleFilter("correlation")
        {
            ContentType = "type", MessageId = "id", ReplyTo = "reply", ReplyToSessionId = "reply-session",
            SessionId = "session", Subject = "subject", To = "to",
        };
        filter.ApplicationProperties["int"] = 5;
        filter.ApplicationProperties["long"] = 5L;
        filter.ApplicationProperties["big"] = 5_000_000_000L;
        filter.ApplicationProperties["double"] = 1.5;
        filter.ApplicationProperties["whole"] = 2.0;
        filter.ApplicationProperties["bool"] = true;
        filter.ApplicationProperties["string"] = "text";
        filter.ApplicationProperties["time"] = new DateTime(2026, 11, 1, 2, 3, 4, DateTimeKind.Utc);
        if (!managed)
        {
            filter.ApplicationProperties["span"] = TimeSpan.FromSeconds(90);
        }
        return filter;
    }

    private static void SameTypes(IDictionary<string, object> wanted, IDictionary<string, object> found)
    {
        Check.SameList(wanted.Keys.OrderBy(key => key), found.Keys.OrderBy(key => key));
        foreach (var key in wanted.Keys)
        {
            Check.Same(wanted[key], found[key], key);
            Check.Same(wanted[key].GetType(), found[key].GetType(), key);
        }
    }

    /// <summary>The filter's and the action's values keep their types, by the administration client and by the rules'.</summary>
    public static async Task RuleTypes()
    {
        var administrator = Bus.Administrator();
        var topic = Bus.Name("topic");
        await administrator.CreateTopicAsync(topic);
        await administrator.CreateSubscriptionAsync(topic, "all");
        var sql = new SqlRuleFilter("a = @int OR b = @long OR c = @time");
        sql.Parameters["@int"] = 1;
        sql.Parameters["@long"] = 2L;
        sql.Parameters["@time"] = new DateTime(2026, 11, 1, 2, 3, 4, DateTimeKind.Utc);
        var action = new SqlRuleAction("SET n = @n");
        action.Parameters["@n"] = 3L;
        await administrator.CreateRuleAsync(topic, "all", new CreateRuleOptions("correlation", Correlation()));
        await administrator.CreateRuleAsync(topic, "all", new CreateRuleOptions("sql", sql) { Action = action });
        await administrator.CreateRuleAsync(topic, "all", new CreateRuleOptions("true", new TrueRuleFilter()));
        await administrator.CreateRuleAsync(topic, "all", new CreateRuleOptions("false", new FalseRuleFilter()));

        RuleProperties correlation = await administrator.GetRuleAsync(topic, "all", "correlation");
        var filter = (CorrelationRuleFilter)correlation.Filter;
        SameTypes(Correlation().ApplicationProperties, filter.ApplicationProperties);
        Check.Same(Correlation(), filter);
        RuleProperties read = await administrator.GetRuleAsync(topic, "all", "sql");
        Check.Same<RuleFilter>(sql, read.Filter);
        SameTypes(sql.Parameters, ((SqlRuleFilter)read.Filter).Parameters);
        SameTypes(action.Parameters, ((SqlRuleAction)read.Action).Parameters);
        filter.ApplicationProperties["long"] = 6L;
        RuleProperties updated = await administrator.UpdateRuleAsync(topic, "all", correlation);
        Check.Same<object>(6L, ((CorrelationRuleFilter)updated.Filter).ApplicationProperties["long"]);
        var names = new List<string>();
        await foreach (var rule in administrator.GetRulesAsync(topic, "all"))
        {
            names.Add(rule.Name);
        }
        Check.SameList(new[] { "$Default", "correlation", "false", "sql", "true" }, names.OrderBy(name => name));
        Check.True(await administrator.RuleExistsAsync(topic, "all", "sql"), "no rule sql");
        await administrator.DeleteRuleAsync(topic, "all", "sql");
        Check.True(!await administrator.RuleExistsAsync(topic, "all", "sql"), "rule sql is still there");
    }

    public static async Task RuleManager()
    {
        var topic = Bus.Name("topic");
        await Bus.Administrator().CreateTopicAsync(topic);
        await Bus.Administrator().CreateSubscriptionAsync(topic, "red");
        await using var client = Bus.Client();
        await using var rules = client.CreateRuleManager(topic, "red");
        await rules.DeleteRuleAsync("$Default");
        await rules.CreateRuleAsync("correlation", Correlation(true));
        var sql = new CreateRuleOptions("sql", new SqlRuleFilter("color = 'red'"))
        {
            Action = new SqlRuleAction("SET shade = 'dark'"),
        };
        await rules.CreateRuleAsync(sql);
        var found = new Dictionary<string, RuleProperties>();
        await foreach (var rule in rules.GetRulesAsync())
        {
            found[rule.Name] = rule;
        }
        Check.SameList(new[] { "correlation", "sql" }, found.Keys.OrderBy(name => name));
        SameTypes(
            Correlation(true).ApplicationProperties,
            ((CorrelationRuleFilter)found["correlation"].Filter).ApplicationProperties);
        RuleProperties read = await Bus.Administrator().GetRuleAsync(topic, "red", "correlation");
        SameTypes(
            Correlation(true).ApplicationProperties, ((CorrelationRuleFilter)read.Filter).ApplicationProperties);
        Check.Same("color = 'red'", ((SqlRuleFilter)found["sql"].Filter).SqlExpression);
        await Check.Reason(
            ServiceBusFailureReason.MessagingEntityAlreadyExists,
            () => rules.CreateRuleAsync("sql", new TrueRuleFilter()));
        await Check.Reason(
            ServiceBusFailureReason.MessagingEntityNotFound, () => rules.DeleteRuleAsync("none"));
        foreach (var color in new[] { "blue", "red" })
        {
            var message = new ServiceBusMessage(color);
            message.ApplicationProperties["color"] = color;
            await client.CreateSender(topic).SendMessageAsync(message);
        }
        var got = await Bus.One(client.CreateReceiver(topic, "red"));
        Check.Same("red", got.Body.ToString());
        Check.Same<object>("dark", got.ApplicationProperties["shade"]);
    }

    public static async Task Runtime()
    {
        var administrator = Bus.Administrator();
        NamespaceProperties space = await administrator.GetNamespacePropertiesAsync();
        Check.Same("contoso", space.Name);
        Check.Same(MessagingSku.Premium, space.MessagingSku);
        var queue = await Bus.Queue();
        await using var client = Bus.Client();
        var sender = client.CreateSender(queue);
        await sender.SendMessagesAsync(new[] { new ServiceBusMessage("a"), new ServiceBusMessage("b") });
        await sender.ScheduleMessageAsync(new ServiceBusMessage("c"), DateTimeOffset.UtcNow.AddHours(1));
        var receiver = client.CreateReceiver(queue);
        await receiver.DeadLetterMessageAsync(await Bus.One(receiver));
        QueueRuntimeProperties found = await administrator.GetQueueRuntimePropertiesAsync(queue);
        Check.SameList(
            new long[] { 1, 1, 1, 0, 0, 3 },
            new[]
            {
                found.ActiveMessageCount, found.DeadLetterMessageCount, found.ScheduledMessageCount,
                found.TransferMessageCount, found.TransferDeadLetterMessageCount, found.TotalMessageCount,
            });
        Check.True(found.SizeInBytes > 0, "no size");
        Check.True(found.CreatedAt > DateTimeOffset.UtcNow.AddMinutes(-5), "created long ago");
        var topic = Bus.Name("topic");
        await administrator.CreateTopicAsync(topic);
        await administrator.CreateSubscriptionAsync(topic, "all");
        TopicRuntimeProperties about = await administrator.GetTopicRuntimePropertiesAsync(topic);
        Check.Same(1, about.SubscriptionCount);
        SubscriptionRuntimeProperties all = await administrator.GetSubscriptionRuntimePropertiesAsync(topic, "all");
        Check.Same(0L, all.ActiveMessageCount);
    }
}
