// Package webhook is what a delivery over HTTP is made of: the request's headers, its signature,
// what an answer means, and how the secrets that sign are kept. It is pure: it sends nothing.
//
//	event     event.go    CloudEvents 1.0, binary content mode: the body is the message's own
//	sign      sign.go     Standard Webhooks: HMAC-SHA256 over id, timestamp and body
//	secret    secret.go   whsec_ secrets
//	answer    answer.go   status and Retry-After -> acknowledged, failed, or gone
//	target    target.go   which URLs and settings may be given
//	ring      ring.go     secrets sealed with AES-256-GCM by a key from the configuration
//
// What is not obvious:
//
//   - webhook-id is the message's id and the same in every attempt, so that a receiver can drop
//     repeats by it. webhook-timestamp is the attempt's own, so that a late retry is not taken for a replay.
//   - The signature covers id, timestamp and body. It does not cover the headers: attributes of
//     the event are as trustworthy as the connection is.
//   - While a secret is being exchanged for another, a request carries a signature by each.
//   - A message's headers may hold anything, so that they are never HTTP headers as they are: they
//     come percent-encoded behind "Notify-Header-".
//   - A sealed secret is bound to its group: copied to another one, it cannot be opened.
package webhook
