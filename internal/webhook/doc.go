// Package webhook delivers the events of a pipeline to other programs by HTTP.
//
// Create [Webhooks] with [New], register receivers with [Webhooks.Add], and call
// [Webhooks.Run] in at least one process. Guarantees:
//
//   - It delivers every requested event since the registration at least once, or lists
//     it as dead. It loses nothing when a process or a receiver is down. The header
//     webhook-id is the same in all attempts, so receivers can detect duplicates. (Of
//     progress events, it delivers only the latest of each stage.)
//   - It delivers the events of one task in order: a later event waits until the
//     earlier one is delivered or dead. Tasks do not delay each other, and a webhook
//     that lags behind does not delay others.
//   - It signs each attempt as [Standard Webhooks] specifies. While a secret is being
//     replaced, it signs with both.
//   - A receiver that hangs or fails occupies only its share of the calls: see
//     Options.PerWebhook. All failing receivers together occupy at most half.
//   - It connects only to addresses that package ssrf permits. It does not follow
//     redirects and uses no proxy.
//
// # Payload
//
// A delivery is a POST request with a JSON object: type, timestamp (of the event) and
// data. Data contains event_id, pipeline, stage, attempt and worker_id if the event has
// them; details, the event's own data; and task: id, source, user_id, request_id, status,
// overridden_by and user_context at the time the delivery was prepared. A source that is a URL has no
// user, password, query or fragment. The payload never exceeds 16 KiB; truncated marks a
// payload that was cut.
//
// # Responses
//
// A 2xx status within the timeout means success, whatever the body. 410 disables the
// webhook. Everything else is a failure. Failed deliveries are retried for three days at
// growing intervals, and not before the receiver's Retry-After (at most an hour). When a
// receiver succeeds after several failures, the deliveries that could not reach it are
// retried immediately. So are those that got a temporary error (408, 425, 429, 5xx),
// until their sixth attempt.
//
// # Alerts
//
// Alerts are for operators. A webhook gets those that it requests. After an alert,
// others of the same type are suppressed for the cooldown; alerts about a host, a disk or
// a key have one cooldown for each. Suppressed alerts stay in the list of deliveries,
// from which they can be redelivered. The next alert contains their number.
//
// # Limits
//
// The database contains the secrets, because signing needs them. A user who may read the
// table cuelight_webhooks can sign. Signatures contain the time of this host's clock, and
// receivers reject a time that is five minutes off.
//
// If a webhook's cursor falls behind the retention of events, for example because it was
// disabled for long, it misses the deleted ones. Options.OnDelivery reports that.
//
// [Standard Webhooks]: https://www.standardwebhooks.com
package webhook
