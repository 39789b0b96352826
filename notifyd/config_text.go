package notifyd

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits, largest first.
var sizeUnits = [...]struct {
	suffix string
	factor int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText reads a size: digits, then nothing, KiB, MiB or GiB.
func (b *Bytes) UnmarshalText(text []byte) error {
	digits, factor := strings.TrimSpace(string(text)), int64(1)
	for _, unit := range sizeUnits {
		if rest, found := strings.CutSuffix(digits, unit.suffix); found {
			digits, factor = strings.TrimSpace(rest), unit.factor
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && int64(n) > math.MaxInt64/factor:
		return errors.New("the size is too large")
	case err != nil:
		return errors.New("not a size: write bytes as digits, or with KiB, MiB or GiB, such as 4MiB")
	}
	*b = Bytes(int64(n) * factor)
	return nil
}

// MarshalText writes the size in the largest unit that divides it.
func (b Bytes) MarshalText() ([]byte, error) {
	for _, unit := range sizeUnits {
		if b != 0 && int64(b)%unit.factor == 0 {
			return []byte(strconv.FormatInt(int64(b)/unit.factor, 10) + unit.suffix), nil
		}
	}
	return []byte(strconv.FormatInt(int64(b), 10)), nil
}

// String is the text of MarshalText.
func (b Bytes) String() string {
	text, _ := b.MarshalText()
	return string(text)
}

// UnmarshalText reads a duration in Go's form. It is never negative.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return errors.New("not a duration: write a number and ms, s, m or h, such as 5s")
	case parsed < 0:
		return errors.New("the duration is negative")
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText writes the duration in Go's form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is the text of MarshalText.
func (d Duration) String() string { return time.Duration(d).String() }
