import { describe, expect, it } from 'vitest'
import {
  callable,
  definedOptions,
  defineOptions,
  flag,
  number,
  type OptionsOf,
  oneOf,
  text,
  unchecked,
} from './options.ts'

interface TeapotOptions {
  litres: number
  brewMs?: number
  lid?: boolean
  name?: string
  leaf?: 'green' | 'black'
  onWhistle?: () => void
  cups?: readonly string[]
}

const TEAPOT = defineOptions(
  'createTeapot',
  {
    litres: unchecked(),
    brewMs: number(180_000, { max: 600_000 }),
    lid: flag(true),
    name: text(),
    leaf: oneOf(['green', 'black'], 'black'),
    onWhistle: callable(),
    cups: unchecked(),
  } satisfies OptionsOf<TeapotOptions>,
  { volume: 'litres' },
)

describe('a definition of options', () => {
  it('returns the given values, and the defaults of the others', () => {
    const given: TeapotOptions = { litres: 1, lid: false, name: undefined }
    const { litres, brewMs, lid, name, leaf } = TEAPOT.read(given)
    expect({ litres, brewMs, lid, name, leaf }).toEqual({
      litres: 1,
      brewMs: 180_000,
      lid: false,
      name: undefined,
      leaf: 'black',
    })
  })

  it('accepts undefined instead of an object', () => {
    expect(TEAPOT.read(undefined).brewMs).toBe(180_000)
  })

  it('picks its options from an object that has others too', () => {
    expect(TEAPOT.pick({ litres: 2, colour: 'red' })).toMatchObject({ litres: 2, lid: true })
    expect(TEAPOT.pick({ colour: 'red' })).not.toHaveProperty('colour')
    expect(() => TEAPOT.pick({ lid: 1, colour: 'red' })).toThrow('lid must be true or false')
  })

  it.each<[unknown, string]>([
    [null, 'createTeapot takes an object with options; got null.'],
    [3, 'createTeapot takes an object with options; got a number.'],
    [{ brewMS: 1 }, 'createTeapot has no option "brewMS". Did you mean "brewMs"?'],
    [{ volume: 1 }, 'createTeapot has no option "volume". Did you mean "litres"?'],
    [{ colour: 'red' }, 'createTeapot has no option "colour".'],
    [{ toString: 1 }, 'createTeapot has no option "toString".'],
    [{ name: null }, 'createTeapot: name is null. Leave it out for its default.'],
    [{ name: 7 }, 'createTeapot: name must be a string; got 7.'],
    [{ lid: 'false' }, 'createTeapot: lid must be true or false; got "false".'],
    [{ brewMs: '3' }, 'createTeapot: brewMs must be a number from 0 to 600000; got "3".'],
    [
      { brewMs: Number.NaN },
      'createTeapot: brewMs must be a number from 0 to 600000; got NaN. Is an environment variable missing?',
    ],
    [{ brewMs: 600_001 }, 'createTeapot: brewMs must be a number from 0 to 600000; got 600001.'],
    [{ leaf: 'mint' }, 'createTeapot: leaf must be one of green, black; got "mint".'],
    [{ onWhistle: {} }, 'createTeapot: onWhistle must be a function; got an object.'],
  ])('refuses %j: %s', (given, message) => {
    expect(() => TEAPOT.assert(given)).toThrow(new TypeError(message))
  })

  it('is one of the listed definitions', () => {
    expect(definedOptions()).toContain(TEAPOT)
  })

  it('names an option of an option with a dot', () => {
    expect(() => TEAPOT.assert({ lid: 1 }, 'createKitchen: teapot')).toThrow(
      new TypeError('createKitchen: teapot.lid must be true or false; got 1.'),
    )
  })

  it('does not compile if an option is missing, does not exist or has a default of another type', () => {
    // @ts-expect-error `cups` is missing.
    const missing: OptionsOf<Pick<TeapotOptions, 'lid' | 'cups'>> = { lid: flag() }
    // @ts-expect-error `spout` is no option.
    const extra: OptionsOf<Pick<TeapotOptions, 'lid'>> = { lid: flag(), spout: flag() }
    // @ts-expect-error `lid` is a boolean.
    const wrong: OptionsOf<Pick<TeapotOptions, 'lid'>> = { lid: number(1) }
    expect([missing, extra, wrong]).toHaveLength(3)
  })
})

describe('a number', () => {
  it.each<[number, boolean]>([
    [0, true],
    [Number.POSITIVE_INFINITY, true],
    [-1, false],
  ])('of 0 or more may be %d: %s', (value, valid) => {
    expect(number().mustBe?.(value)).toBe(valid ? undefined : 'a number of 0 or more')
  })

  it('that must be whole refuses a fraction', () => {
    expect(number(1, { whole: true, max: 9 }).mustBe?.(1.5)).toBe('a whole number from 0 to 9')
  })

  it('that must be finite refuses Infinity', () => {
    expect(number(1, { finite: true }).mustBe?.(Number.POSITIVE_INFINITY)).toBe(
      'a finite number of 0 or more',
    )
  })
})
