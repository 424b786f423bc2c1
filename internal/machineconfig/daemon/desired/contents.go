package desired

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

const (
	// maxContent bounds a file, and maxTotal all files of a configuration, after decompression.
	maxContent, maxTotal = 16 << 20, 128 << 20
	dataScheme           = "data:"
)

// isInline reports whether the configuration itself has the content.
func isInline(r types.Resource) bool {
	return r.Source == nil || len(*r.Source) >= len(dataScheme) && strings.EqualFold((*r.Source)[:len(dataScheme)], dataScheme)
}

// Content returns the content of an inline resource, uncompressed and compared with its hash.
// Errors name what is wrong, and never quote content.
func Content(r types.Resource) ([]byte, error) {
	if r.Source == nil {
		return nil, errors.New("expected a source; use data:, for an empty file")
	}
	decoded, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return nil, errors.New("expected a valid data URL") // the parser's message quotes content
	}
	content := decoded.Data
	if r.Compression != nil && *r.Compression == "gzip" {
		if content, err = decompress(content); err != nil {
			return nil, err
		}
	}
	if len(content) > maxContent {
		return nil, fmt.Errorf("expected at most %d bytes, got %d", maxContent, len(content))
	}
	if r.Verification.Hash != nil {
		if err := verify(content, *r.Verification.Hash); err != nil {
			return nil, err
		}
	}
	return content, nil
}

func decompress(compressed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, errors.New("expected content that gzip has compressed, as the field compression says")
	}
	content, err := io.ReadAll(io.LimitReader(reader, maxContent+1))
	if err != nil {
		return nil, errors.New("the compressed content is damaged")
	}
	return content, nil
}

// verify compares content with a hash of the form sha512-<hex> or sha256-<hex>.
func verify(content []byte, hash string) error {
	algorithm, want, _ := strings.Cut(hash, "-")
	var got []byte
	switch algorithm {
	case "sha512":
		sum := sha512.Sum512(content)
		got = sum[:]
	case "sha256":
		sum := sha256.Sum256(content)
		got = sum[:]
	default:
		return errors.New("verification.hash: expected sha512-… or sha256-…")
	}
	if hex.EncodeToString(got) != strings.ToLower(want) {
		return errors.New("verification.hash: the content has another hash")
	}
	return nil
}
