package board

import (
	"errors"
	"math"
	"strings"
)

// maxDecimals is the most digits that an amount can have behind its point.
const maxDecimals = 9

var errAmount = errors.New("not an amount")

// minorUnits reads a decimal number exactly: 12.3 with two decimals is 1230. What it cannot
// hold to the last digit is an error: more decimals than that, exponents, beyond an int64.
func minorUnits(text string, decimals int) (int64, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	if whole == "" || point && fraction == "" {
		return 0, errAmount
	}
	if len(fraction) > decimals {
		if strings.Trim(fraction[decimals:], "0") != "" {
			return 0, errAmount
		}
		fraction = fraction[:decimals]
	}
	fraction += strings.Repeat("0", decimals-len(fraction))
	var n int64
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' || n > (math.MaxInt64-int64(c-'0'))/10 {
			return 0, errAmount
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

// plus adds amounts, unless the sum is beyond an int64.
func plus(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}
