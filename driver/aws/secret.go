package aws

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Keys in the data of the Secret with the credentials: those of Machine Controller Manager, and
// SecretEndpoint. Values are trimmed.
const (
	// SecretAccessKeyID and SecretSecretAccessKey are an access key. The first key of each is used if
	// both are there.
	SecretAccessKeyID              = "providerAccessKeyId"
	SecretAccessKeyIDAlternative   = "accessKeyID"
	SecretSecretAccessKey          = "providerSecretAccessKey"
	SecretSecretAccessKeyAlternate = "secretAccessKey"
	// SecretTokenFile is the path of a file with a token of a workload identity, in one of
	// Config.TokenDirs. With it, SecretRoleARN is required, and an access key is ignored.
	SecretTokenFile = "workloadIdentityTokenFile"
	// SecretRoleARN is the role that the workload identity assumes.
	SecretRoleARN = "roleARN"
	// SecretEndpoint names one of Config.Endpoints; without it the first is used.
	SecretEndpoint = "endpoint"
)

// identity authenticates the requests of a Secret: either an access key or a token
// file with a role.
type identity struct {
	accessKeyID, secretAccessKey string
	tokenFile, roleARN           string
	endpoint                     string
}

// parseSecret reads a Secret. Errors name keys, and never values.
func parseSecret(data map[string][]byte) (identity, error) {
	value := func(keys ...string) string {
		for _, key := range keys {
			if v := bytes.TrimSpace(data[key]); len(v) > 0 {
				return string(v)
			}
		}
		return ""
	}
	id := identity{endpoint: value(SecretEndpoint)}
	if _, usesToken := data[SecretTokenFile]; usesToken {
		id.tokenFile, id.roleARN = value(SecretTokenFile), value(SecretRoleARN)
		if id.tokenFile == "" {
			return identity{}, fmt.Errorf("the Secret has an empty key %q; expected the path of a file with a token", SecretTokenFile)
		}
		if id.roleARN == "" {
			return identity{}, fmt.Errorf("the Secret has no key %q, which %q requires; add the ARN of the role to assume",
				SecretRoleARN, SecretTokenFile)
		}
		return id, nil
	}
	id.accessKeyID = value(SecretAccessKeyID, SecretAccessKeyIDAlternative)
	id.secretAccessKey = value(SecretSecretAccessKey, SecretSecretAccessKeyAlternate)
	if id.accessKeyID == "" {
		return identity{}, fmt.Errorf("the Secret has none of the keys %q, %q and %q; expected one of them",
			SecretAccessKeyID, SecretAccessKeyIDAlternative, SecretTokenFile)
	}
	if id.secretAccessKey == "" {
		return identity{}, fmt.Errorf("the Secret has none of the keys %q and %q; expected one of them",
			SecretSecretAccessKey, SecretSecretAccessKeyAlternate)
	}
	return id, nil
}

// hash returns a hash of all that an identity is built from.
func (id identity) hash() [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{id.accessKeyID, id.secretAccessKey, id.tokenFile, id.roleARN, id.endpoint}, "\x00")))
}

// name returns a short hash of who an identity is, which shows no secret and does not change when
// its secret access key does.
func (id identity) name() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{id.accessKeyID, id.tokenFile, id.roleARN}, "\x00")))
	return hex.EncodeToString(sum[:8])
}
