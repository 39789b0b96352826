package window_test

import (
	"fmt"
	"time"

	"notifymirror/stream/window"
)

// Sales per shop and minute; one comes too late.
func Example() {
	w, err := window.New(window.Config{Size: time.Minute, Lateness: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, sale := range []struct {
		after time.Duration
		shop  string
		cents int64
	}{{0, "north", 995}, {30 * time.Second, "south", 150}, {59 * time.Second, "north", 5}, {66 * time.Second, "south", 700}, {20 * time.Second, "north", 1}} {
		late, err := w.Add(window.Event{Time: noon.Add(sale.after), Key: sale.shop, Amount: sale.cents})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, missed := range late {
			fmt.Println("too late for", missed)
		}
		for _, closed := range w.Due() {
			fmt.Println(closed)
			for _, shop := range closed.Top(10, func(a window.Aggregate) int64 { return a.Sum }) {
				fmt.Println(" ", shop.Key, shop.Count, shop.Sum)
			}
		}
	}
	// Output:
	// 2026-11-29T12:00:00Z/2026-11-29T12:01:00Z
	//   north 2 1000
	//   south 1 150
	// too late for 2026-11-29T12:00:00Z/2026-11-29T12:01:00Z
}
