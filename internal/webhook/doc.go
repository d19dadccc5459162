// Package webhook tells other programs by HTTP what happens to tasks.
//
// Make [Webhooks] with [New], register receivers with [Webhooks.Add], and have at
// least one process [Webhooks.Run]. What it promises:
//
//   - Every event after its registration that a webhook asks for is delivered at
//     least once, or ends in the list of those that could not be. Nothing is lost
//     with a process, or while a receiver is down. Receivers tell what comes twice
//     by the header webhook-id, which stays the same over all attempts. (Of progress
//     only the latest of a stage is delivered.)
//   - The events of one task arrive in their order: a later one waits until the
//     earlier one has arrived or is given up. Tasks do not wait for each other, nor
//     webhooks for one that is behind.
//   - Every attempt is signed anew after Standard Webhooks
//     (https://www.standardwebhooks.com), while a secret is being changed with
//     both.
//   - A receiver that hangs or fails takes no more than its share; see
//     Options.PerWebhook. Failing ones together leave room for half of all.
//   - No connection is made to an address that is not public, or is this host's,
//     unless Options.Allow names its network, whatever a name server says. Redirects
//     are not followed, and no proxy is used.
//
// # What is sent
//
// A POST with a JSON object: type, timestamp (when it happened) and data. In data
// are event_id, pipeline, stage, attempt and worker_id where there are any; details,
// which is what the event itself says; and task: id, source, user_id, request_id,
// status and overridden_by, as they were when the delivery was prepared. Of a source
// that is a URL, user, password, query and fragment are left out. It is never larger
// than 16 KiB; what is cut to fit is marked by truncated.
//
// # What is an answer
//
// A status of 2xx within the timeout, whatever the body. 410 disables the webhook.
// Everything else is a failure and is tried again, for a good three days at growing
// intervals, and not before the receiver's Retry-After, if it does not ask for more
// than an hour. When a receiver has failed several times in a row and takes something
// again, what could not reach it is sent without waiting any longer; so is what it
// answered with an error that may pass (408, 425, 429, 5xx), before the sixth attempt.
//
// # Alerts
//
// Alerts are for operators: a webhook gets those it asks for. After one of a kind,
// and of those about a host or its disk of the same, those that happen within the
// cooldown are not sent. They stay in the list of
// deliveries as suppressed, from where they can be sent all the same, and the next
// one that is sent says how many there were.
//
// # What it does not
//
// The secrets are in the database, since signing needs them. Whoever may read the
// table cuelight_webhooks can sign. Signatures carry the time of this host's clock,
// and receivers refuse what is five minutes off.
//
// A webhook whose cursor falls behind what the outbox keeps, as one may that was
// disabled for long, misses what was deleted; Options.Observe hears of it.
package webhook
