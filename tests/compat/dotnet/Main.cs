using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

/// <summary>Runs the cases named on the command line and prints one line of JSON for each.</summary>
public static class Program
{
    public static async Task<int> Main(string[] names)
    {
        // A transaction blocks a thread while it commits, and the pool grows slowly.
        ThreadPool.SetMinThreads(64, 64);
        var failed = 0;
        foreach (var name in names)
        {
            var line = new Dictionary<string, object> { ["case"] = name, ["ok"] = true };
            try
            {
                await All.Cases[name]();
            }
            catch (Exception error)
            {
                failed++;
                line["ok"] = false;
                line["detail"] = error.ToString();
            }
            Told(line);
        }
        return failed == 0 ? 0 : 1;
    }

    public static void Told(object line)
    {
        lock (typeof(Program))
        {
            Console.WriteLine(JsonSerializer.Serialize(line));
        }
    }
}

/// <summary>Every case by its name.</summary>
public static class All
{
    public static readonly Dictionary<string, Func<Task>> Cases = new Dictionary<string, Func<Task>>
    {
        ["send"] = Messages.Send,
        ["batch"] = Messages.Batch,
        ["settle"] = Messages.Settle,
        ["receive-and-delete"] = Messages.ReceiveAndDelete,
        ["peek"] = Messages.Peek,
        ["renew"] = Messages.Renew,
        ["sessions"] = Messages.Sessions,
        ["schedule"] = Messages.Schedule,
        ["topics"] = Messages.Topics,
        ["transactions"] = Transactions.SendAndSettle,
        ["administration"] = Administration.Queues,
        ["websocket"] = Messages.WebSocket,
        ["large"] = Messages.Large,
        ["wrong-key"] = Refusals.WrongKey,
        ["missing-entity"] = Refusals.MissingEntity,
        ["kill"] = Messages.Kill,
        ["properties"] = Messages.Properties,
        ["batch-delete"] = Messages.BatchDelete,
        ["processor"] = Processors.Messages,
        ["session-processor"] = Processors.Sessions,
        ["processor-kills"] = Load.Messages,
        ["session-kills"] = Load.Sessions,
        ["scope-settlements"] = Transactions.Settlements,
        ["scope-dead-letter"] = Transactions.DeadLetter,
        ["scope-deferred"] = Transactions.Deferred,
        ["scope-schedule"] = Transactions.Schedule,
        ["scope-cancel"] = Transactions.Cancel,
        ["scope-session-state"] = Transactions.SessionState,
        ["scope-renew"] = Transactions.Renew,
        ["scope-reads"] = Transactions.Reads,
        ["scope-refused"] = Transactions.Refused,
        ["scope-subscription"] = Transactions.Subscription,
        ["scope-two-queues"] = Transactions.TwoQueues,
        ["scope-cross-entity"] = Transactions.CrossEntity,
        ["scope-parallel"] = Transactions.Parallel,
        ["scope-processor"] = Transactions.Processor,
        ["rule-manager"] = Administration.RuleManager,
        ["queue-settings"] = Administration.QueueSettings,
        ["topic-settings"] = Administration.TopicSettings,
        ["subscription-settings"] = Administration.SubscriptionSettings,
        ["rule-types"] = Administration.RuleTypes,
        ["runtime-properties"] = Administration.Runtime,
        ["reasons"] = Refusals.Reasons,
        ["unsigned-token"] = Refusals.UnsignedToken,
    };
}

/// <summary>Clients of the transport that the environment names, and checks.</summary>
public static class Bus
{
    public static readonly TimeSpan Wait = TimeSpan.FromSeconds(10);
    public static readonly TimeSpan Short = TimeSpan.FromSeconds(2);
    private static readonly string Transport = Setting("COMPAT_TRANSPORT") ?? "tls";
    private static readonly string Port = Setting("COMPAT_PORT");
    public static readonly string Connection = Setting(Transport == "plain" ? "COMPAT_PLAIN" : "COMPAT_TLS");
    private static int made;

    public static string Setting(string name) => Environment.GetEnvironmentVariable(name);

    public static ServiceBusClientOptions Options(string transport = null)
    {
        var options = new ServiceBusClientOptions
        {
            RetryOptions = new ServiceBusRetryOptions
            {
                MaxRetries = 1,
                Delay = TimeSpan.FromMilliseconds(500),
                TryTimeout = Wait,
            },
        };
        transport ??= Transport;
        if (transport != "plain")
        {
            // Otherwise the client goes to 5671 or 443, whatever the connection string says.
            options.CustomEndpointAddress = new Uri($"sb://localhost:{Port}");
        }
        if (transport == "websocket")
        {
            options.TransportType = ServiceBusTransportType.AmqpWebSockets;
        }
        return options;
    }

    public static ServiceBusClient Client() => new ServiceBusClient(Connection, Options());

    public static ServiceBusAdministrationClient Administrator() =>
        new ServiceBusAdministrationClient(Connection);

    public static string Name(string kind) =>
        $"{kind}-{Transport}-{Guid.NewGuid().ToString("N").Substring(0, 8)}-{Interlocked.Increment(ref made)}";

    /// <summary>A new queue of its own for a case.</summary>
    public static async Task<string> Queue(Action<CreateQueueOptions> choose = null)
    {
        var options = new CreateQueueOptions(Name("queue"));
        choose?.Invoke(options);
        await Administrator().CreateQueueAsync(options);
        return options.Name;
    }

    public static async Task<ServiceBusReceivedMessage> One(ServiceBusReceiver receiver)
    {
        var message = await receiver.ReceiveMessageAsync(Wait);
        Check.True(message != null, "no message came");
        return message;
    }
}

public static class Check
{
    public static void True(bool wanted, string text)
    {
        if (!wanted)
        {
            throw new InvalidOperationException(text);
        }
    }

    public static void Same<T>(T wanted, T found, string what = "value")
    {
        True(EqualityComparer<T>.Default.Equals(wanted, found), $"{what}: wanted {wanted}, found {found}");
    }

    public static void SameList<T>(IEnumerable<T> wanted, IEnumerable<T> found)
    {
        Same(string.Join(", ", wanted), string.Join(", ", found), "list");
    }

    public static async Task<T> Throws<T>(Func<Task> action) where T : Exception
    {
        try
        {
            await action();
        }
        catch (T error)
        {
            return error;
        }
        throw new InvalidOperationException($"not refused with {typeof(T).Name}");
    }

    public static async Task Reason(ServiceBusFailureReason reason, Func<Task> action)
    {
        var error = await Throws<ServiceBusException>(action);
        Same(reason, error.Reason, error.Message);
    }
}
