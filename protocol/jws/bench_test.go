package jws_test

import (
	"testing"

	"github.com/fairlead/fairlead/protocol/jws"
)

// BenchmarkVerify measures the profile alone, BenchmarkCommand a whole command.
func BenchmarkVerify(b *testing.B) {
	k := newRawKey(b, "k1")
	ks := set(b, k.jwk(nil))
	token := k.typed(jws.TypeCommand, mustJSON(commandPayload()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ks.Verify(token); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommand(b *testing.B) {
	k := newRawKey(b, "k1")
	keys := k.static(b, now)
	token := k.typed(jws.TypeCommand, mustJSON(commandPayload()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Command(b.Context(), token, jws.AudienceAgent); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGarbage measures what a token costs that is refused before any
// cryptography.
func BenchmarkGarbage(b *testing.B) {
	k := newRawKey(b, "k1")
	ks := set(b, k.jwk(nil))
	token := newRawKey(b, "k2").typed(jws.TypeCommand, mustJSON(commandPayload()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ks.Verify(token); err == nil {
			b.Fatal("verified")
		}
	}
}

func BenchmarkSignCommand(b *testing.B) {
	s, err := jws.GenerateSigner()
	noError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.SignCommand(sampleCommand()); err != nil {
			b.Fatal(err)
		}
	}
}
