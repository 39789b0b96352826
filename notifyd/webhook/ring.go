package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrNoKey is returned when a key is asked for that is not in the ring.
var ErrNoKey = errors.New("secret key not configured")

// ErrSealed is returned when a sealed secret cannot be opened: it was changed, belongs to
// another owner, or was sealed with another key of the same id.
var ErrSealed = errors.New("sealed secret cannot be opened")

// keyBytes is the length of a key of the ring, for AES-256.
const keyBytes = 32

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// A Ring holds the keys that seal secrets. The first seals, all open: a new key is put first
// when every reader has it, and an old one is taken out when nothing is sealed with it.
type Ring struct {
	first string
	keys  map[string]cipher.AEAD
}

// ParseRing reads keys of the form ID:BASE64, 32 bytes each. No keys make a ring that seals
// nothing. Its errors do not quote a key.
func ParseRing(keys []string) (*Ring, error) {
	r := &Ring{keys: map[string]cipher.AEAD{}}
	for i, text := range keys {
		id, encoded, ok := strings.Cut(text, ":")
		if !ok || !keyID.MatchString(id) {
			return nil, fmt.Errorf("key %d is not ID:KEY with an id of 1 to 32 bytes of [A-Za-z0-9._-]", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil || len(key) != keyBytes {
			return nil, fmt.Errorf("key %s is not base64 of %d bytes: openssl rand -base64 %d makes one", id, keyBytes, keyBytes)
		}
		if r.keys[id] != nil {
			return nil, fmt.Errorf("key %s is there twice", id)
		}
		if r.keys[id], err = aead(key); err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		if i == 0 {
			r.first = id
		}
	}
	return r, nil
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal encrypts a secret with the first key. owner is what it belongs to, and is needed to
// open it. It returns ErrNoKey when the ring is empty.
func (r *Ring) Seal(s Secret, owner string) (key string, sealed []byte, err error) {
	gcm := r.keys[r.first]
	if gcm == nil {
		return "", nil, ErrNoKey
	}
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce)
	return r.first, gcm.Seal(nonce, nonce, s.key, []byte(owner)), nil
}

// Open decrypts what Seal made. It returns ErrNoKey or ErrSealed.
func (r *Ring) Open(key string, sealed []byte, owner string) (Secret, error) {
	gcm := r.keys[key]
	if gcm == nil {
		return Secret{}, fmt.Errorf("%w: %s", ErrNoKey, key)
	}
	if len(sealed) < gcm.NonceSize() {
		return Secret{}, ErrSealed
	}
	plain, err := gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], []byte(owner))
	if err != nil {
		return Secret{}, ErrSealed
	}
	return Secret{plain}, nil
}
