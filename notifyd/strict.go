package notifyd

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
)

// What a request holds and this program does not know is never passed over: a delay that is not known would be a message
// delivered at once, a filter that is not known a purge of everything. A field in protobuf is unknown when the caller is of a
// newer version, in a rolling upgrade most of all another broker, that passes a message on; in JSON it may be misspelt.

// checkKnown refuses a request with fields that this program does not know. What another broker has passed on can be sent again:
// the next one may know them.
func checkKnown(m proto.Message, passedOn bool) error {
	field := unknownField(m.ProtoReflect())
	switch {
	case field == "":
		return nil
	case passedOn:
		return newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker that was asked next is of an older version and does not know %s: nothing was done; upgrade all brokers, and try again", field)
	}
	return &message.FieldError{Field: "request", Rule: "it holds " + field + ", which this broker does not know: it is of an older version than the caller; upgrade it"}
}

// unknownField names a field that is not known, or nothing.
func unknownField(m protoreflect.Message) string {
	if raw := m.GetUnknown(); len(raw) > 0 {
		number, _, _ := protowire.ConsumeTag(raw)
		return fmt.Sprintf("field %d of %s", number, m.Descriptor().Name())
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || !m.Has(f) || f.IsMap() && f.MapValue().Message() == nil {
			continue
		}
		if name := unknownInside(m.Get(f), f); name != "" {
			return name
		}
	}
	return ""
}

// unknownInside looks into the messages that a field holds.
func unknownInside(v protoreflect.Value, f protoreflect.FieldDescriptor) (name string) {
	switch {
	case f.IsMap():
		v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			name = unknownField(v.Message())
			return name == ""
		})
	case f.IsList():
		for i := 0; i < v.List().Len() && name == ""; i++ {
			name = unknownField(v.List().Get(i).Message())
		}
	default:
		name = unknownField(v.Message())
	}
	return name
}

// strict refuses calls with what is not known. Of a stream of publishes each is looked at when it is accepted, so
// that it has an answer of its own.
type strict struct{}

// WrapUnary implements connect.Interceptor.
func (strict) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if m, ok := req.Any().(proto.Message); ok {
			if err := checkKnown(m, isPassedOn(req.Header())); err != nil {
				return nil, rpcError(err)
			}
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (strict) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (strict) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, strictConn{conn})
	}
}

type strictConn struct{ connect.StreamingHandlerConn }

// Receive implements connect.StreamingHandlerConn.
func (c strictConn) Receive(into any) error {
	if err := c.StreamingHandlerConn.Receive(into); err != nil {
		return err
	}
	m, ok := into.(proto.Message)
	if _, each := into.(*notifyv1.PublishStreamRequest); !ok || each {
		return nil
	}
	if err := checkKnown(m, isPassedOn(c.RequestHeader())); err != nil {
		return rpcError(err)
	}
	return nil
}

// isPassedOn reports whether a call comes from another broker.
func isPassedOn(h http.Header) bool { return h.Get(forwardedHeader) != "" }

// A strictJSON is connect's JSON, but that a field which is not known is an error.
type strictJSON struct{ name string }

// Name implements connect.Codec.
func (c strictJSON) Name() string { return c.name }

// Marshal implements connect.Codec.
func (strictJSON) Marshal(m any) ([]byte, error) { return protojson.Marshal(m.(proto.Message)) }

// Unmarshal implements connect.Codec.
func (strictJSON) Unmarshal(data []byte, into any) error {
	return protojson.Unmarshal(data, into.(proto.Message))
}
