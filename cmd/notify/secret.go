package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// maxSecretFile is more than any secret has, in bytes.
	maxSecretFile = 4 << 10
	// webhookTestPatience is longer than the longest attempt.
	webhookTestPatience = 70 * time.Second
)

// secret reads a secret from a file, or from stdin for "-". No file is no secret. A secret is never
// an argument: others could see it in the list of processes.
func (a *app) secret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", usageError(fmt.Errorf("--secret-file: %w", err))
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSecretFile))
	if err != nil {
		return "", fmt.Errorf("--secret-file: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", usageError(fmt.Errorf("--secret-file: %s is empty", file))
	}
	return secret, nil
}
