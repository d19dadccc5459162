package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Signatures follow Standard Webhooks 1.0: HMAC-SHA256 of "id.timestamp.body". The key is
// the base64 text after the secret's prefix.
const (
	secretPrefix = "whsec_"
	secretBytes  = 32
)

var errInvalidSecret = errors.New("the webhook's secret is invalid; rotate it")

func newSecret() string {
	var key [secretBytes]byte
	rand.Read(key[:]) // never returns an error
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// maskSecret returns the beginning of a secret, to tell it from others.
func maskSecret(secret string) string {
	const visible = len(secretPrefix) + 4
	if len(secret) <= 2*visible {
		return secretPrefix + "…"
	}
	return secret[:visible] + "…"
}

// signatures returns the header webhook-signature, with one signature per secret.
func signatures(secrets []string, id string, at time.Time, body string) (string, error) {
	var all []string
	for _, s := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, secretPrefix))
		if err != nil || len(key) == 0 {
			return "", errInvalidSecret
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, unixSeconds(at), body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " "), nil
}

func unixSeconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
