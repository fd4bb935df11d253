import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../../../test/support/has-an-end.ts'
import { findSecret, findSecretWords } from './form.ts'

const NAMES =
  `password Password userPassword user_password new-password PASSWORD passwd pwd dbPwd passphrase passcode
  secret clientSecret client_secret token accessToken access_token idToken csrf_token API_TOKEN apiKey api_key APIKey
  apikey x-api-key myAPIKey2 accessKey aws_access_key_id privateKey private_key sshPrivateKey secretKey signingKey
  credential credentials pin cardPin cvv CVC2 cvc securityCode ssn socialSecurityNumber otp totpCode oneTimeCode
  verificationCode recoveryPhrase seed_phrase creditCard cardNumber jwt bearer_tokens
  tokenize tokenizer tokens maxTokens max_tokens tokenCount token_limit tokenType pinned pinCount spin pinterest keyboard
  key keys primaryKey sortKey keyword secretary passwordPolicy password_length secretName passport passenger bypass
  author authorization assignee code country_code zipCode cardColor name id options shipping opinion`.split(
    /\s+/,
  )

const TITLES = [
  'Your password',
  'PIN code',
  'API key (optional)',
  'One-time code from the app',
  'Card number',
  'What is your token?',
  'Max tokens',
  'Pin this message',
  'Token limit',
  'Secrets of the trade',
  'The author’s name',
]

describe('words that name a secret', () => {
  it('T5 findSecretWords finds them whole, in every spelling, and nowhere else', () => {
    const lines = [...NAMES, ...TITLES].map((name) => `${name}: ${findSecretWords(name) ?? '-'}`)
    expect(lines.join('\n')).toMatchInlineSnapshot(`
      "password: password
      Password: password
      userPassword: password
      user_password: password
      new-password: password
      PASSWORD: password
      passwd: passwd
      pwd: pwd
      dbPwd: pwd
      passphrase: passphrase
      passcode: passcode
      secret: secret
      clientSecret: secret
      client_secret: secret
      token: token
      accessToken: token
      access_token: token
      idToken: token
      csrf_token: token
      API_TOKEN: token
      apiKey: api key
      api_key: api key
      APIKey: api key
      apikey: apikey
      x-api-key: api key
      myAPIKey2: api key
      accessKey: access key
      aws_access_key_id: access key
      privateKey: private key
      private_key: private key
      sshPrivateKey: private key
      secretKey: secret key
      signingKey: signing key
      credential: credential
      credentials: credentials
      pin: pin
      cardPin: pin
      cvv: cvv
      CVC2: cvc
      cvc: cvc
      securityCode: security code
      ssn: ssn
      socialSecurityNumber: social security
      otp: otp
      totpCode: totp
      oneTimeCode: one time code
      verificationCode: verification code
      recoveryPhrase: recovery phrase
      seed_phrase: seed phrase
      creditCard: credit card
      cardNumber: card number
      jwt: jwt
      bearer_tokens: bearer tokens
      tokenize: -
      tokenizer: -
      tokens: -
      maxTokens: -
      max_tokens: -
      tokenCount: -
      token_limit: -
      tokenType: -
      pinned: -
      pinCount: -
      spin: -
      pinterest: -
      keyboard: -
      key: -
      keys: -
      primaryKey: -
      sortKey: -
      keyword: -
      secretary: -
      passwordPolicy: -
      password_length: -
      secretName: -
      passport: -
      passenger: -
      bypass: -
      author: -
      authorization: -
      assignee: -
      code: -
      country_code: -
      zipCode: -
      cardColor: -
      name: -
      id: -
      options: -
      shipping: -
      opinion: -
      Your password: password
      PIN code: pin
      API key (optional): api key
      One-time code from the app: one time code
      Card number: card number
      What is your token?: token
      Max tokens: -
      Pin this message: pin
      Token limit: -
      Secrets of the trade: secrets
      The author’s name: -"
    `)
  })

  it.each<[string, string, object, string | undefined]>([
    ['a title', 'x', { type: 'string', title: 'API key' }, 'api key'],
    ['a number', 'pin', { type: 'integer' }, 'pin'],
    ['a format', 'x', { type: 'string', format: 'password' }, 'password'],
    ['an unknown type', 'token', { type: 'object' }, 'token'],
    ['a yes or no', 'pin', { type: 'boolean' }, undefined],
    ['a choice', 'token', { type: 'string', enum: ['a', 'b'] }, undefined],
    ['a list of choices', 'secrets', { type: 'array', items: { enum: ['a'] } }, undefined],
    ['an inherited name', '__proto__', { type: 'string' }, undefined],
  ])('T5 findSecret finds them where one can be entered: %s', (_name, name, schema, words) => {
    expect(findSecret(name, schema)).toBe(words)
  })

  it('T5 findSecretWords takes linear time', () => {
    hasAnEnd(() => findSecretWords('aB'.repeat(1_000_000)))
  })
})
