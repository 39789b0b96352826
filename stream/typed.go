package stream

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// JSON is a handler of records whose body is a T in JSON. A body that is not is
// rejected: it goes to Config.RejectTopic or, without one, stops the consumer.
func JSON[T any](handle func(context.Context, Record, T) error) func(context.Context, Record) error {
	return func(ctx context.Context, r Record) error {
		var v T
		if err := json.Unmarshal(r.Body, &v); err != nil {
			return Reject(fmt.Sprintf("body is not JSON of a %T: %v", v, err))
		}
		return handle(ctx, r, v)
	}
}

// Proto is a handler of records whose body is a protobuf message of type M, such as
// *pb.Order. A body that is not is rejected, as JSON does.
func Proto[M interface {
	*T
	proto.Message
}, T any](handle func(context.Context, Record, M) error) func(context.Context, Record) error {
	return func(ctx context.Context, r Record) error {
		v := M(new(T))
		if err := proto.Unmarshal(r.Body, v); err != nil {
			return Reject(fmt.Sprintf("body is not protobuf of a %s: %v", v.ProtoReflect().Descriptor().FullName(), err))
		}
		return handle(ctx, r, v)
	}
}
