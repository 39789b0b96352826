package record

import "errors"

var (
	// ErrNotMirrored is returned by Decode for a record that the mirror did not
	// write: a notify-* header is missing, repeated or malformed.
	ErrNotMirrored = errors.New("not a mirrored record")
	// ErrHeaderText is returned by DecodeHeaders and AppendHeaders for a text that
	// is neither empty nor a JSON object of strings in valid UTF-8.
	ErrHeaderText = errors.New("header text is not a JSON object of strings")
	// ErrHeader is returned for a header that no message may have: a reserved or
	// repeated name, or a name or value that is not UTF-8.
	ErrHeader = errors.New("invalid header")
)
