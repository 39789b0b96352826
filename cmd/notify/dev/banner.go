package dev

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/schema"
)

// banner is what is told once everything runs.
type banner struct {
	cfg   Config
	dir   string
	ports ports
	db    embedded.Server
	store schema.Info
	took  time.Duration
}

// print writes the banner; the line that begins "ready in" is the last.
func (b banner) print(w io.Writer) error {
	if b.cfg.JSON {
		return b.json(w)
	}
	_, err := io.WriteString(w, b.text())
	return err
}

func (b banner) text() string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, "  "+format+"\n", args...) }
	line("database   %s  %s  %s", b.db, b.db.Path, addr(b.ports.database))
	line("kafka      embedded (dev only)  %s", addr(b.ports.kafka))
	line("schema     version %d, %d shards", schema.Latest, b.store.Shards)
	s.WriteString("\n")
	line("API        %s  (gRPC, and JSON over HTTP)", addr(b.ports.api))
	line("metrics    http://%s/metrics  http://%s/metrics", addr(b.ports.ops), addr(b.ports.mirrorOps))
	if b.cfg.Ephemeral {
		line("data       %s, removed at the end", b.dir)
	} else {
		line("data       kept in %s", home(b.dir))
	}
	if b.cfg.Demo {
		line("demo       %s to the groups %s", demoTopic, strings.Join(demoGroups(), " and "))
		line("board      %s  the trades, live, in a browser", b.ports.boardURL())
	}
	s.WriteString("\n")
	listen, others := b.commands()
	line("try, in another terminal")
	line("           %s", listen)
	line("then, in a third one")
	for _, c := range others {
		line("           %s", c)
	}
	fmt.Fprintf(&s, "\nready in %.1f s. Press Ctrl-C to stop.\n", b.took.Seconds())
	return s.String()
}

// commands are to be pasted into other terminals: one that goes on, and then the others. A new
// group gets what is published from then on, so that listening comes first.
func (b banner) commands() (listen string, others []string) {
	broker, kafka := "", ""
	if b.ports.api != 7700 {
		broker = " --server " + addr(b.ports.api)
		kafka = " --kafka " + addr(b.ports.kafka)
	}
	program := b.cfg.Program
	return program + " listen hello" + broker, []string{
		program + " publish hello 'first message'" + broker,
		program + " mirror tail hello --from oldest" + kafka,
	}
}

func (b banner) json(w io.Writer) error {
	board := ""
	if b.cfg.Demo {
		board = b.ports.boardURL()
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"board":   board,
		"version": b.cfg.Version, "ready_seconds": b.took.Seconds(),
		"api": addr(b.ports.api), "ops": addr(b.ports.ops), "mirror_ops": addr(b.ports.mirrorOps),
		"kafka": addr(b.ports.kafka), "kafka_embedded": true,
		"database":    map[string]string{"server": b.db.String(), "path": b.db.Path, "address": addr(b.ports.database)},
		"data_dir":    b.dir,
		"ephemeral":   b.cfg.Ephemeral,
		"store_id":    b.store.StoreID,
		"shards":      b.store.Shards,
		"dev_warning": "one process, not for production",
	})
}

// home shortens a path below the home directory to ~.
func home(dir string) string {
	h, err := os.UserHomeDir()
	if err != nil || h == "" || !strings.HasPrefix(dir, h+string(os.PathSeparator)) {
		return dir
	}
	return "~" + strings.TrimPrefix(dir, h)
}
