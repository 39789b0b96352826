// Package filter decides whether a subscription wants a message: a CEL expression over the
// message's headers, key and topic, never its body.
//
//	headers   map(string, string)   the message's headers
//	key       string                its key, "" when it has none
//	topic     string                its topic
//
// An expression is boolean, at most 4,096 bytes, and cheap: what it may cost at most is
// estimated when it is compiled, and counted while it runs.
//
// What is not obvious:
//
//   - A header that is missing reads as "": headers.region != "eu" is true for a message
//     without the header, and headers.region == "eu" is false. has(headers.region) and
//     "region" in headers tell a missing header from an empty one. In plain CEL both
//     comparisons would be errors. It is so for every map of strings.
//   - An expression that fails for a message, for example int(headers.size) of a header that is no number, or that
//     costs too much for it, has no answer. Match returns the error; the broker delivers the message then,
//     and counts it: an unwanted message can be thrown away, a missing one cannot be found.
//   - What only compares strings (plain.go) is asked without CEL's interpreter: it is ten times as fast.
//   - There is no clock and nothing random in it: the same message always gets the same answer.
package filter
