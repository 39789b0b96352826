package dev

import (
	"context"
	"errors"
	"log/slog"
)

func startBroker(ctx context.Context, p ports, d *data, version string, logger *slog.Logger) (*service, error) {
	return nil, errors.New("broker: not yet")
}
