package board

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	// Zone names work on machines without a zone database.
	_ "time/tzdata"

	"notifymirror/mirror/access"
)

// Config says which boards there are and where their data comes from. The zero value of
// each field that is not required is its default.
type Config struct {
	// Kafka is where the mirror is.
	Kafka KafkaConfig `yaml:"kafka"`
	// TopicPrefix is the mirror's. Default record.DefaultPrefix.
	TopicPrefix string `yaml:"topic_prefix"`
	// Canald are ops addresses, host:port, of all canalds. With them boards show the mirror's
	// lag, and know a quiet topic from a mirror that is down. Default: none.
	Canald []string `yaml:"canald"`
	// Notifyd are API addresses, host:port, of all brokers. With them boards show the backlog
	// of the groups that have the topic. Default: none.
	Notifyd []string `yaml:"notifyd"`
	// Zone is the time zone of days and hours, such as Asia/Shanghai. Default: the machine's.
	Zone string `yaml:"zone"`
	// Boards by name: 1 to 40 of a-z 0-9 -. Required.
	Boards map[string]Board `yaml:"boards"`
}

// KafkaConfig is where Kafka is.
type KafkaConfig struct {
	// Brokers as host:port; any of them leads to the rest. Required.
	Brokers []string `yaml:"brokers"`
	// Access is TLS and account. Default: plain text, no account.
	Access access.Config `yaml:",inline"`
}

// A Board is what one page shows.
type Board struct {
	// Title stands above the number. Default: the board's name.
	Title string `yaml:"title"`
	// Topic is notify's name of it. Required.
	Topic string `yaml:"topic"`
	// Filter says which messages count. Default: all.
	Filter Filter `yaml:"filter"`
	// Since says from when on. Default oldest.
	Since Since `yaml:"since"`
	// Amount is a field with a number to add up, which is then the board's number instead of
	// the count of messages.
	Amount Field `yaml:"amount"`
	// Decimals is how many digits an amount has behind its point: 0 to 9. Default 0.
	Decimals int `yaml:"decimals"`
	// MinorUnits: the field holds whole minor units, such as cents. Default false: it holds
	// a decimal number.
	MinorUnits bool `yaml:"minor_units"`
	// Unit stands beside the number. Default: none.
	Unit string `yaml:"unit"`
	// Curve is over how long the curve goes back: 1 m to 1 h. Default 5 m.
	Curve time.Duration `yaml:"curve"`
	// Bars are fields by whose values messages are counted, for few values; Top the same as
	// a ranking. Each at most 4.
	Bars []Field `yaml:"bars"`
	Top  []Field `yaml:"top"`
	// Recent are the columns of the moving list, at most 6. Default: there is no list.
	Recent []Field `yaml:"recent"`
	// Values is how many values of a field are told apart at least; up to twice as many are
	// counted exactly. 10 to 100,000, default 1,000.
	Values int `yaml:"values"`
}

// money tells whether the board's number is a sum.
func (b *Board) money() bool { return b.Amount.kind != noField }

const (
	defaultCurve  = 5 * time.Minute
	defaultValues = 1000
	mostFields    = 4
	mostColumns   = 6
)

var boardName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Validate returns all that is wrong, joined, each as "key: what is wrong".
func (c *Config) Validate() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(len(c.Kafka.Brokers) == 0, "kafka.brokers: none is given: write kafka: {brokers: ['127.0.0.1:9092']}")
	for _, list := range []struct {
		key       string
		addresses []string
	}{{"kafka.brokers", c.Kafka.Brokers}, {"canald", c.Canald}, {"notifyd", c.Notifyd}} {
		for _, address := range list.addresses {
			wrong(!isHostPort(address), "%s: %q: must be host:port", list.key, address)
		}
	}
	errs = append(errs, c.Kafka.Access.Check()...)
	_, err := c.location()
	wrong(err != nil, "zone: %q: unknown: write a name such as Asia/Shanghai", c.Zone)
	wrong(len(c.Boards) == 0, "boards: none is given: write boards: {trades: {topic: trades}}")
	for _, name := range slices.Sorted(maps.Keys(c.Boards)) {
		wrong(!boardName.MatchString(name), "boards.%s: the name must be 1 to 40 of a-z 0-9 -", name)
		b := c.Boards[name]
		errs = append(errs, b.validate("boards."+name)...)
	}
	return errors.Join(errs...)
}

func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, numeric := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && numeric == nil && n > 0
}

// location is the zone; the machine's when none is given.
func (c *Config) location() (*time.Location, error) {
	if c.Zone == "" {
		return time.Local, nil
	}
	return time.LoadLocation(c.Zone)
}

func (b *Board) validate(path string) (errs []error) {
	wrong := func(is bool, key, text string) {
		if is {
			errs = append(errs, fmt.Errorf("%s.%s: %s", path, key, text))
		}
	}
	wrong(b.Topic == "", "topic", "is required: the topic whose messages are shown")
	wrong(b.Decimals < 0 || b.Decimals > maxDecimals, "decimals", "must be 0 to 9")
	wrong(!b.money() && (b.Decimals != 0 || b.MinorUnits || b.Unit != ""), "amount", "is missing: decimals, minor_units and unit say how it is read")
	wrong(b.Curve != 0 && (b.Curve < time.Minute || b.Curve > time.Hour), "curve", "must be 1m to 1h")
	wrong(len(b.Bars) > mostFields, "bars", "at most 4 fields")
	wrong(len(b.Top) > mostFields, "top", "at most 4 fields")
	wrong(len(b.Recent) > mostColumns, "recent", "at most 6 fields")
	wrong(b.Values != 0 && (b.Values < 10 || b.Values > 100_000), "values", "must be 10 to 100000")
	return errs
}

// withDefaults fills in a valid board.
func (b Board) withDefaults(name string) Board {
	if b.Title == "" {
		b.Title = name
	}
	if b.Curve == 0 {
		b.Curve = defaultCurve
	}
	if b.Values == 0 {
		b.Values = defaultValues
	}
	return b
}
