package canal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"notifymirror/canal"
)

// A reader that prints what is inserted into one table, from the server's present on.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config := canal.Config{
		Addr: "127.0.0.1:3306", User: "reader", Password: os.Getenv("READER_PASSWORD"),
		Schema: "shop", Watch: func(table string) bool { return table == "orders" },
	}
	info, err := canal.Inspect(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	tailer, err := canal.NewTailer(config)
	if err != nil {
		log.Fatal(err)
	}
	for txn, err := range tailer.Txns(ctx, info.Position) {
		if errors.Is(err, canal.ErrPurged) {
			log.Fatal("the binlog is gone: ", err)
		}
		if err != nil {
			log.Fatal(err)
		}
		for row, err := range txn.Rows() {
			if err != nil {
				log.Fatal(err)
			}
			for i, v := range row.Values {
				fmt.Printf("%s: %s %d\n", row.Table.Columns[i], v.Bytes, v.Int)
			}
		}
		save(txn.After()) // with what came of the rows
	}
}

func save(canal.Position) {}
