package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// Lengths of secrets, in bytes, as Standard Webhooks has them.
const (
	MinSecretBytes = 24
	MaxSecretBytes = 64
	newSecretBytes = 32
)

const secretPrefix = "whsec_"

// A Secret signs what is sent to a receiver. Printing one shows nothing of it.
type Secret struct{ key []byte }

// NewSecret makes a random secret of 32 bytes.
func NewSecret() Secret {
	key := make([]byte, newSecretBytes)
	rand.Read(key)
	return Secret{key}
}

// ParseSecret reads whsec_ and base64 of 24 to 64 bytes. Its errors do not quote the text.
func ParseSecret(text string) (Secret, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	if !ok {
		return Secret{}, fmt.Errorf("the secret does not begin with %s", secretPrefix)
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(rest, "="))
	if err != nil {
		return Secret{}, fmt.Errorf("the secret is not base64 behind %s", secretPrefix)
	}
	if len(key) < MinSecretBytes || len(key) > MaxSecretBytes {
		return Secret{}, fmt.Errorf("the secret has %d bytes; it must have %d to %d", len(key), MinSecretBytes, MaxSecretBytes)
	}
	return Secret{key}, nil
}

// Text is the secret in the form that ParseSecret reads.
func (s Secret) Text() string { return secretPrefix + base64.StdEncoding.EncodeToString(s.key) }

// String hides the secret.
func (s Secret) String() string { return secretPrefix + "..." }

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }
