// A certificate authority, a timestamp authority and a log as cosign knows them, in one program without dependencies: for tests,
// which sign offline by what cosign's documentation calls keyless. It believes every token that it is given.
//
//	go run authority.go ADDRESS DIRECTORY
//
// Their certificates last for 10 minutes, as Fulcio's do. It writes ca.pem, tsa.pem and log.pub to the directory, and then listens. openssl makes its timestamps.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const origin = "log.test"

var (
	directory  string
	caKey      = newKey()
	ca         *x509.Certificate
	logKey     = newKey()
	logKeyHash [32]byte
	serials    atomic.Int64
	// The life of a signer's certificate, as Fulcio has it.
	life = 10 * time.Minute
)

func main() {
	directory = os.Args[2]
	begin, end := time.Now().Add(-time.Hour), time.Now().AddDate(100, 0, 0)
	ca = authority("ca", begin, end, caKey)
	write("ca.pem", "CERTIFICATE", ca.Raw)

	tsaKey := newKey()
	template := named("tsa", begin, end)
	template.ExtraExtensions = []pkix.Extension{{
		Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true,
		Value: must(asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})),
	}}
	tsaRootKey := newKey()
	tsaRoot := authority("tsa root", begin, end, tsaRootKey)
	tsa := must(x509.CreateCertificate(rand.Reader, template, tsaRoot, &tsaKey.PublicKey, tsaRootKey))
	write("tsa.crt", "CERTIFICATE", tsa)
	write("tsa.pem", "CERTIFICATE", tsa, tsaRoot.Raw)
	write("tsa.key", "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(tsaKey)))
	config := "[tsa]\ndefault_tsa = it\n[it]\nserial = " + path("tsa.serial") + "\ndefault_policy = 1.2.3.4\n" +
		"digests = sha256, sha384, sha512\nsigner_digest = sha256\ness_cert_id_alg = sha256\n"
	check(os.WriteFile(path("tsa.conf"), []byte(config), 0o600))

	public := must(x509.MarshalPKIXPublicKey(&logKey.PublicKey))
	logKeyHash = sha256.Sum256(public)
	write("log.pub", "PUBLIC KEY", public)

	http.HandleFunc("POST /api/v2/signingCert", certify)
	http.HandleFunc("POST /api/v1/signingCert", certifyFirst)
	http.HandleFunc("POST /api/v1/timestamp", stamp)
	http.HandleFunc("POST /api/v1/log/entries", enter)
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}

// The certificate of the signer whose token a request has.
func certificate(request *http.Request, public any) []byte {
	_, token, _ := strings.Cut(request.Header.Get("Authorization"), "Bearer ")
	var claims struct{ Iss, Sub, Email string }
	check(json.Unmarshal(must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])), &claims))
	template := named("", time.Now().Add(-time.Second), time.Now().Add(life))
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	if claims.Email != "" {
		template.EmailAddresses = []string{claims.Email}
	} else {
		template.URIs = []*url.URL{must(url.Parse(claims.Sub))}
	}
	template.ExtraExtensions = []pkix.Extension{
		{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(claims.Iss)},
		{
			Id:    asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8},
			Value: must(asn1.MarshalWithParams(claims.Iss, "utf8")),
		},
	}
	return must(x509.CreateCertificate(rand.Reader, template, ca, public, caKey))
}

// Fulcio's call.
func certify(answer http.ResponseWriter, request *http.Request) {
	var asked struct {
		PublicKeyRequest struct{ PublicKey struct{ Content string } }
	}
	check(json.NewDecoder(request.Body).Decode(&asked))
	block, _ := pem.Decode([]byte(asked.PublicKeyRequest.PublicKey.Content))
	chain := []string{text(certificate(request, must(x509.ParsePKIXPublicKey(block.Bytes)))), text(ca.Raw)}
	certificates := map[string]any{"chain": map[string]any{"certificates": chain}}
	reply(answer, http.StatusOK, map[string]any{"signedCertificateDetachedSct": certificates})
}

// Fulcio's first call, which cosign 2 makes.
func certifyFirst(answer http.ResponseWriter, request *http.Request) {
	var asked struct{ PublicKey struct{ Content []byte } }
	check(json.NewDecoder(request.Body).Decode(&asked))
	block, _ := pem.Decode(asked.PublicKey.Content)
	own := certificate(request, must(x509.ParsePKIXPublicKey(block.Bytes)))
	answer.Header().Set("Content-Type", "application/pem-certificate-chain")
	answer.WriteHeader(http.StatusCreated)
	fmt.Fprint(answer, text(own), text(ca.Raw))
}

// The call of a timestamp authority (RFC 3161).
func stamp(answer http.ResponseWriter, request *http.Request) {
	query := must(os.CreateTemp(directory, "query"))
	defer os.Remove(query.Name())
	must(io.Copy(query, request.Body))
	check(query.Close())
	command := exec.Command("openssl", "ts", "-reply", "-config", path("tsa.conf"), "-queryfile", query.Name(),
		"-signer", path("tsa.crt"), "-inkey", path("tsa.key"))
	command.Stderr = os.Stderr
	made := must(command.Output())
	answer.Header().Set("Content-Type", "application/timestamp-reply")
	answer.WriteHeader(http.StatusCreated)
	answer.Write(made)
}

// Rekor's call. Each entry is the only one of a tree of its own.
func enter(answer http.ResponseWriter, request *http.Request) {
	var asked struct {
		Kind, ApiVersion string
		Spec             map[string]any
	}
	check(json.NewDecoder(request.Body).Decode(&asked))
	if asked.Kind == "dsse" {
		asked.Spec = envelope(asked.Spec["proposedContent"].(map[string]any))
	}
	body := must(json.Marshal(map[string]any{"apiVersion": asked.ApiVersion, "kind": asked.Kind, "spec": asked.Spec}))
	now, index, id := time.Now().Unix(), 0, hex.EncodeToString(logKeyHash[:])
	encoded := base64.StdEncoding.EncodeToString(body)
	promised := must(json.Marshal(map[string]any{"body": encoded, "integratedTime": now, "logID": id, "logIndex": index}))
	root := sha256.Sum256(append([]byte{0}, body...))
	note := fmt.Sprintf("%s - 1\n1\n%s\n", origin, base64.StdEncoding.EncodeToString(root[:]))
	signed := base64.StdEncoding.EncodeToString(append(append([]byte{}, logKeyHash[:4]...), sign(logKey, []byte(note))...))
	proof := map[string]any{
		"checkpoint": fmt.Sprintf("%s\n— %s %s\n", note, origin, signed), "hashes": []string{}, "logIndex": 0,
		"rootHash": hex.EncodeToString(root[:]), "treeSize": 1,
	}
	uuid := "0000000000000001" + hex.EncodeToString(root[:])
	answer.Header().Set("ETag", uuid)
	answer.Header().Set("Location", "/api/v1/log/entries/"+uuid)
	reply(answer, http.StatusCreated, map[string]any{uuid: map[string]any{
		"body": encoded, "integratedTime": now, "logID": id, "logIndex": index,
		"verification": map[string]any{"inclusionProof": proof, "signedEntryTimestamp": sign(logKey, promised)},
	}})
}

// What the log keeps of an envelope.
func envelope(proposed map[string]any) map[string]any {
	var it struct {
		Payload    []byte
		Signatures []struct{ Sig string }
	}
	whole := []byte(proposed["envelope"].(string))
	check(json.Unmarshal(whole, &it))
	hash := func(bytes []byte) map[string]any {
		sum := sha256.Sum256(bytes)
		return map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}
	}
	signature := map[string]any{"signature": it.Signatures[0].Sig, "verifier": proposed["verifiers"].([]any)[0]}
	return map[string]any{"envelopeHash": hash(whole), "payloadHash": hash(it.Payload), "signatures": []any{signature}}
}

func named(name string, begin, end time.Time) *x509.Certificate {
	subject := pkix.Name{CommonName: name, Organization: []string{"rollhook tests"}}
	if name == "" {
		subject = pkix.Name{}
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(serials.Add(1)), Subject: subject, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func authority(name string, begin, end time.Time, key *ecdsa.PrivateKey) *x509.Certificate {
	template := named(name, begin, end)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	made := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	return must(x509.ParseCertificate(made))
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func sign(key *ecdsa.PrivateKey, text []byte) []byte {
	sum := sha256.Sum256(text)
	return must(key.Sign(rand.Reader, sum[:], crypto.SHA256))
}

func path(name string) string { return filepath.Join(directory, name) }

func text(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func write(name, kind string, all ...[]byte) {
	file := must(os.Create(path(name)))
	for _, der := range all {
		check(pem.Encode(file, &pem.Block{Type: kind, Bytes: der}))
	}
	check(file.Close())
}

func reply(answer http.ResponseWriter, status int, document any) {
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(status)
	check(json.NewEncoder(answer).Encode(document))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}
