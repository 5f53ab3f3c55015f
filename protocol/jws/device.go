package jws

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// A DeviceKey is the key of one sandbox, bound to it by a [Certificate]. It
// signs transcripts, never tokens. It is immutable and safe for concurrent use.
type DeviceKey struct {
	key    *ecdsa.PrivateKey
	public json.RawMessage
}

// GenerateDeviceKey makes a new P-256 key.
func GenerateDeviceKey() (*DeviceKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	return newDeviceKey(key)
}

// ParseDeviceKey reads a private JWK as [DeviceKey.MarshalPrivate] writes it.
// Errors never quote the key.
func ParseDeviceKey(jwk []byte) (*DeviceKey, error) {
	_, key, err := parsePrivateJWK(jwk)
	if err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	return newDeviceKey(key)
}

func newDeviceKey(key *ecdsa.PrivateKey) (*DeviceKey, error) {
	jwk, err := newPublicJWK(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	public, err := json.Marshal(jwk)
	if err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	return &DeviceKey{key, public}, nil
}

// String hides the private key from logs.
func (*DeviceKey) String() string { return "device key" }

// GoString is String: %#v would print the private key.
func (k *DeviceKey) GoString() string { return k.String() }

// MarshalPrivate returns the private JWK, for a file of mode 0600.
func (k *DeviceKey) MarshalPrivate() ([]byte, error) { return marshalPrivateJWK(k.key, "") }

// PublicJWK returns the public key, as a certificate's jwk holds it.
func (k *DeviceKey) PublicJWK() json.RawMessage { return append(json.RawMessage(nil), k.public...) }

// Sign returns an ECDSA signature of the SHA-256 of transcript, in ASN.1. The
// transcript must begin with its purpose, as [protocol.HelloTranscript]'s does.
func (k *DeviceKey) Sign(transcript []byte) ([]byte, error) {
	sum := sha256.Sum256(transcript)
	signature, err := ecdsa.SignASN1(rand.Reader, k.key, sum[:])
	if err != nil {
		return nil, fmt.Errorf("device key: sign: %w", err)
	}
	return signature, nil
}

// ECDH returns the key that opens what is sealed to the device (envseal).
func (k *DeviceKey) ECDH() (*ecdh.PrivateKey, error) {
	key, err := k.key.ECDH()
	if err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	return key, nil
}

// VerifyDevice reports whether signature is public's signature of transcript.
func VerifyDevice(public *ecdsa.PublicKey, transcript, signature []byte) bool {
	sum := sha256.Sum256(transcript)
	return ecdsa.VerifyASN1(public, sum[:], signature)
}
