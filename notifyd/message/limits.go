package message

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a message. The body's limit is the broker's configuration.
const (
	MaxTopicBytes  = 127
	MaxGroupBytes  = 127
	MaxKeyBytes    = 255
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10
	// DefaultMaxBodyBytes is the largest body unless configured.
	DefaultMaxBodyBytes = 4 << 20
)

// ReservedHeaderPrefix begins the names that the mirror adds itself.
const ReservedHeaderPrefix = "notify-"

// FieldError says which field of a message breaks which rule.
type FieldError struct {
	Field string
	// Rule is the sentence for the producer, without the field's name.
	Rule string
	// Size and Limit are set when the field is too large.
	Size, Limit int
}

// Error names the field and the rule, and for a size both numbers.
func (e *FieldError) Error() string {
	if e.Limit > 0 {
		return fmt.Sprintf("%s: %s: size %d, limit %d", e.Field, e.Rule, e.Size, e.Limit)
	}
	return e.Field + ": " + e.Rule
}

// TooLarge reports whether a size limit was the reason.
func (e *FieldError) TooLarge() bool { return e.Limit > 0 }

// Validate returns the first broken rule, or nil. maxBody is the largest body in bytes.
func (m *Message) Validate(maxBody int) error {
	if err := ValidateTopic(m.Topic); err != nil {
		return err
	}
	if err := tooLarge("key", "too many bytes", len(m.Key), MaxKeyBytes); err != nil {
		return err
	}
	if !utf8.ValidString(m.Key) {
		return &FieldError{Field: "key", Rule: "not UTF-8"}
	}
	if err := tooLarge("body", "too many bytes", len(m.Body), maxBody); err != nil {
		return err
	}
	return validateHeaders(m.Headers)
}

// ValidateTopic checks a topic's name.
func ValidateTopic(name string) error { return validateName("topic", name, MaxTopicBytes) }

// ValidateGroup checks a group's name; the rules are those of a topic.
func ValidateGroup(name string) error { return validateName("group", name, MaxGroupBytes) }

func validateName(field, name string, limit int) error {
	switch {
	case name == "":
		return &FieldError{Field: field, Rule: "empty; give 1 to 127 bytes of [A-Za-z0-9._-]"}
	case name[0] == '_':
		return &FieldError{Field: field, Rule: `names that begin with "_" are reserved`}
	case name == "." || name == "..":
		return &FieldError{Field: field, Rule: `"." and ".." are not names`}
	}
	if err := tooLarge(field, "too many bytes", len(name), limit); err != nil {
		return err
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return &FieldError{Field: field, Rule: fmt.Sprintf("byte %d is %q; allowed are [A-Za-z0-9._-]", i+1, c)}
		}
	}
	return nil
}

func validateHeaders(headers map[string]string) error {
	if err := tooLarge("headers", "too many pairs", len(headers), MaxHeaders); err != nil {
		return err
	}
	total := 0
	for k, v := range headers {
		total += len(k) + len(v)
		switch {
		case k == "":
			return &FieldError{Field: "headers", Rule: "a name is empty"}
		case len(k) >= len(ReservedHeaderPrefix) && strings.EqualFold(k[:len(ReservedHeaderPrefix)], ReservedHeaderPrefix):
			return &FieldError{Field: "headers", Rule: fmt.Sprintf("name %q: names that begin with %q are reserved", k, ReservedHeaderPrefix)}
		case !utf8.ValidString(k):
			return &FieldError{Field: "headers", Rule: fmt.Sprintf("name %q is not UTF-8", k)}
		case !utf8.ValidString(v):
			return &FieldError{Field: "headers", Rule: fmt.Sprintf("value of %q is not UTF-8", k)}
		}
	}
	return tooLarge("headers", "too many bytes of names and values", total, MaxHeaderBytes)
}

func tooLarge(field, rule string, size, limit int) error {
	if size <= limit {
		return nil
	}
	return &FieldError{Field: field, Rule: rule, Size: size, Limit: limit}
}
