package connection

import (
	"bytes"
	"encoding/binary"
)

// MaxItems is the maximum number of objects in an answer; one page of a list has 500.
const MaxItems = 1000

// maxValues is the maximum number of values in an answer, and maxEventValues in an event of a
// watch. A value of 2 bytes, such as an empty container, has 468 bytes when it is decoded, and
// twice as many while its list grows. A Node has about 600, a pod 800, and one of 20 containers
// 4,200.
const maxValues, maxEventValues = 50_000, 20_000

// tooManyValuesError is the error of an answer with more values or objects than one of these
// bounds.
type tooManyValuesError struct{}

func (*tooManyValuesError) Error() string {
	return "expected objects of Kubernetes, got more values than these have"
}

// IsTooLarge reports that a page with fewer objects may be read.
func (*tooManyValuesError) IsTooLarge() bool { return true }

// counter counts the values of a JSON document, and the elements of the lists at its top.
type counter struct {
	values, items, depth int
	inText, isEscaped    bool
}

// next reads a character, and reports whether it has ended the document.
func (c *counter) next(b byte) (ended bool) {
	switch {
	case c.isEscaped:
		c.isEscaped = false
	case c.inText:
		c.isEscaped, c.inText = b == '\\', b != '"'
	case b == '"':
		c.inText = true
	case b == ',':
		c.values++
		if c.depth == 2 { // of an object in a list, or the field of a field; an object has few of these
			c.items++
		}
	case b == '{', b == '[':
		c.values++
		c.depth++
	case b == '}', b == ']':
		c.depth--
		return c.depth <= 0
	}
	return false
}

// maxNesting is how deep messages of protobuf are searched for values.
const maxNesting = 32

// count returns about how many values an answer has, and how many items if it is a list.
func count(content []byte, isProtobuf bool) (values, items int) {
	if !isProtobuf {
		c := counter{}
		for _, b := range content {
			c.next(b)
		}
		return c.values, c.items
	}
	var object []byte
	eachPart(content, func(number int32, part []byte) {
		if number == second {
			object = part
		}
	})
	eachPart(object, func(number int32, _ []byte) {
		if number == second {
			items++
		}
	})
	return ofMessage(content, 0, maxValues), items
}

// second is the number of the field with the object in its envelope, and of that with the items in
// a list; other objects have it once.
const second = 2

// Encodings of fields in protobuf.
const (
	varint = iota
	eightBytes
	withLength
	beginOfGroup
	endOfGroup
	fourBytes
)

// prefix precedes each object in its envelope.
var prefix = []byte("k8s\x00")

// eachPart calls visit with the number and content of each field of a message that has a length, as
// all texts, messages and elements of lists have, up to where it is no message.
func eachPart(content []byte, visit func(number int32, part []byte)) {
	content = bytes.TrimPrefix(content, prefix)
	for len(content) > 0 {
		tag, size := binary.Uvarint(content)
		if size <= 0 {
			return
		}
		content = content[size:]
		switch tag & 7 {
		case varint:
			_, size = binary.Uvarint(content)
		case eightBytes:
			size = 8
		case fourBytes:
			size = 4
		case beginOfGroup, endOfGroup:
			continue
		case withLength:
			var length uint64
			if length, size = binary.Uvarint(content); size > 0 && length <= uint64(len(content)-size) {
				content = content[size:]
				size = int(length)
				visit(int32(tag>>3), content[:size])
				break
			}
			return
		default:
			return
		}
		if size < 0 || size > len(content) || tag&7 == varint && size == 0 {
			return
		}
		content = content[size:]
	}
}

// ofMessage returns how many parts a message of protobuf has, and how many these have; not all of
// them, if they are more than most. Nothing shows whether a part is a text or a message. A text
// rarely begins as a message does.
func ofMessage(content []byte, nesting, most int) (n int) {
	eachPart(content, func(_ int32, part []byte) {
		if n++; nesting < maxNesting && n <= most {
			n += ofMessage(part, nesting+1, most-n)
		}
	})
	return n
}
