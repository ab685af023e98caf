using System;
using System.Linq;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;
using Azure.Core;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

/// <summary>Errors as the client tells them.</summary>
public static class Refusals
{
    public static async Task WrongKey()
    {
        var wrong = Regex.Replace(Bus.Connection, "SharedAccessKey=[^;]+", "SharedAccessKey=wrong");
        await using var client = new ServiceBusClient(wrong, Bus.Options());
        await Check.Throws<UnauthorizedAccessException>(
            () => client.CreateSender("send").SendMessageAsync(new ServiceBusMessage("x")));
    }

    public static async Task MissingEntity()
    {
        await using var client = Bus.Client();
        await Check.Reason(
            ServiceBusFailureReason.MessagingEntityNotFound,
            () => client.CreateSender("none").SendMessageAsync(new ServiceBusMessage("x")));
    }

    private sealed class Unsigned : TokenCredential
    {
        public override AccessToken GetToken(TokenRequestContext context, CancellationToken cancel)
        {
            var due = DateTimeOffset.UtcNow.AddHours(1);
            var claims = $"{{\"aud\": \"x\", \"exp\": {due.ToUnixTimeSeconds()}}}";
            return new AccessToken($"{Encoded("{\"alg\": \"none\"}")}.{Encoded(claims)}.", due);
        }

        public override System.Threading.Tasks.ValueTask<AccessToken> GetTokenAsync(
            TokenRequestContext context, CancellationToken cancel) =>
            new System.Threading.Tasks.ValueTask<AccessToken>(this.GetToken(context, cancel));

        private static string Encoded(string text) =>
            Convert.ToBase64String(Encoding.UTF8.GetBytes(text)).TrimEnd('=').Replace('+', '-').Replace('/', '_');
    }

    public static async Task UnsignedToken()
    {
        await using var client = new ServiceBusClient("localhost", new Unsigned(), Bus.Options("tls"));
        await Check.Throws<UnauthorizedAccessException>(
            () => client.CreateSender("send").SendMessageAsync(new ServiceBusMessage("x")));
    }

    public static async Task Reasons()
    {
        var administrator = Bus.Administrator();
        await using var client = Bus.Client();
        var queue = await Bus.Queue(options => options.LockDuration = TimeSpan.FromSeconds(5));
        var sender = client.CreateSender(queue);
        await using var receiver = client.CreateReceiver(queue);

        await sender.SendMessageAsync(new ServiceBusMessage("once"));
        var message = await Bus.One(receiver);
        await receiver.CompleteMessageAsync(message);
        await Check.Reason(ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(message));
        await Check.Reason(ServiceBusFailureReason.MessageLockLost, () => receiver.RenewMessageLockAsync(message));
        await Check.Reason(
            ServiceBusFailureReason.MessageNotFound, () => receiver.ReceiveDeferredMessageAsync(message.SequenceNumber));
        await Check.Reason(
            ServiceBusFailureReason.MessageSizeExceeded,
            () => sender.SendMessageAsync(new ServiceBusMessage(new byte[2 * 1024 * 1024])));
        await Check.Throws<InvalidOperationException>(() => client.AcceptNextSessionAsync(queue));

        var sessions = await Bus.Queue(options => options.RequiresSession = true);
        await Check.Throws<InvalidOperationException>(
            () => client.CreateSender(sessions).SendMessageAsync(new ServiceBusMessage("no session")));
        await Check.Throws<InvalidOperationException>(
            () => client.CreateReceiver(sessions).ReceiveMessageAsync(Bus.Short));
        await using (await client.AcceptSessionAsync(sessions, "held"))
        {
            await Check.Reason(
                ServiceBusFailureReason.SessionCannotBeLocked, () => client.AcceptSessionAsync(sessions, "held"));
        }
        var hurried = Bus.Options();
        hurried.RetryOptions.MaxRetries = 0;
        hurried.RetryOptions.TryTimeout = TimeSpan.FromSeconds(2);
        await using (var impatient = new ServiceBusClient(Bus.Connection, hurried))
        {
            await Check.Reason(
                ServiceBusFailureReason.ServiceTimeout, () => impatient.AcceptNextSessionAsync(sessions));
        }

        await Check.Reason(
            ServiceBusFailureReason.MessagingEntityAlreadyExists, () => administrator.CreateQueueAsync(queue));
        await Check.Reason(
            ServiceBusFailureReason.MessagingEntityNotFound, () => administrator.GetQueueAsync("none"));
        await Check.Throws<ArgumentException>(() => administrator.CreateQueueAsync(
            new CreateQueueOptions("wrong") { MaxDeliveryCount = 0 }));
        await Check.Throws<ArgumentException>(() => administrator.CreateQueueAsync(
            new CreateQueueOptions("wrong") { ForwardTo = "missing" }));
        QueueProperties properties = await administrator.GetQueueAsync(queue);
        properties.Status = EntityStatus.Disabled;
        await administrator.UpdateQueueAsync(properties);
        await Check.Reason(
            ServiceBusFailureReason.MessagingEntityDisabled,
            () => client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("x")));
    }
}
