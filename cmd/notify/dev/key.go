package dev

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
)

// keptKey reads the key in a file, and makes both when there is none: secrets that it sealed must open
// at the next start.
func keptKey(path string) (string, error) {
	key, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return string(key), err
	}
	random := make([]byte, 32)
	rand.Read(random)
	text := "dev:" + base64.StdEncoding.EncodeToString(random)
	return text, os.WriteFile(path, []byte(text), 0o600)
}
