package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"notifymirror/stream/board"
)

// startBoard serves a live board over the sample trades.
func startBoard(ctx context.Context, p ports, logger *slog.Logger) (*service, error) {
	trades, err := tradesBoard()
	if err != nil {
		return nil, err
	}
	server, err := board.New(board.Config{
		Kafka:   board.KafkaConfig{Brokers: []string{addr(p.kafka)}},
		Canald:  []string{addr(p.mirrorOps)},
		Notifyd: []string{addr(p.api)},
		Boards:  map[string]board.Board{demoTopic: trades},
	}, board.Deps{Logger: boardLogger(logger)})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", addr(p.board))
	if err != nil {
		return nil, fmt.Errorf("board: %w", err)
	}
	return start(ctx, "board", func(ctx context.Context) error { return server.Run(ctx, listener, server.Handler()) }), nil
}

// tradesBoard adds up the amounts of today's trades.
func tradesBoard() (board.Board, error) {
	var errs []error
	field := func(text string) board.Field {
		f, err := board.ParseField(text)
		errs = append(errs, err)
		return f
	}
	since, err := board.ParseSince("day")
	errs = append(errs, err)
	b := board.Board{
		Title: "Sample trades", Topic: demoTopic, Since: since,
		Amount: field("json.amount"), Decimals: 2, Unit: "USD",
		Bars:   []board.Field{field("json.side")},
		Top:    []board.Field{field("key as Symbol")},
		Recent: []board.Field{field("key as Symbol"), field("json.side"), field("json.quantity")},
	}
	return b, errors.Join(errs...)
}

// boardLogger is quiet: the mirror's topic comes with the first trade, and the board waits
// for it.
func boardLogger(logger *slog.Logger) *slog.Logger { return slog.New(errorsOnly{logger.Handler()}) }

// boardURL is where the board is.
func (p ports) boardURL() string { return "http://" + addr(p.board) + "/" }
